"""Messages to the workers: a nudge that a thread has something to run, or that a run should stop.

What must happen is a row; a message that Redis loses, or never gets, is made good by the sweeper.
So sending never fails the request. The messages are Celery's own, made once by Celery and kombu and
then only given ids and arguments, because sending is on the path of every run and Celery's client
takes eight times as long.
"""

from __future__ import annotations

import base64
import logging
import time
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import redis
from django.conf import settings
from kombu import Connection

from apps.agent_server import streams
from apps.core.json import dumps, loads
from config.celery import app

log = logging.getLogger(__name__)

EXECUTE_THREAD = "agent_server.execute_thread"
CANCEL = "agent_server.cancel"


def execute_thread(thread_pk: UUID) -> None:
    """Have a worker look at the thread's queue; the row's own key, not the client's id."""
    _send(EXECUTE_THREAD, str(thread_pk))


def cancel_run(run_id: UUID) -> None:
    """Have the worker that executes the run read its `cancel_action` now."""
    _send(CANCEL, str(run_id))


def announce_end(run_id: UUID, status: str) -> None:
    """Tell the readers of a run that ended without a worker."""
    name, now = streams.key(run_id), streams.EventId(time.time_ns() // 1_000_000, 0)
    batch = streams.pack(now, [[streams.END.decode(), dumps({"status": status})]])
    try:
        with _client().pipeline(transaction=False) as pipeline:
            pipeline.xadd(name, {streams.FIELD: batch}, id=str(now))
            pipeline.publish(name, batch)
            pipeline.expire(name, streams.ENDED_SECONDS)
            pipeline.execute()
    except redis.RedisError as error:
        log.warning("the end of run %s waits to be looked up: %s", run_id, error)


def _send(task: str, argument: str) -> None:
    queue, message = encode(task, argument)
    try:
        _client().lpush(queue, message)
    except redis.RedisError as error:
        log.warning("%s waits for the sweeper: %s", task, error)


def encode(task: str, argument: str) -> tuple[str, bytes]:
    """The queue of the task, and the message as Celery would put it there."""
    queue, sample = _sample(task)
    task_id = str(uuid4())
    headers = {
        **sample["headers"],
        "id": task_id,
        "root_id": task_id,
        "argsrepr": repr((argument,)),
    }
    properties = {
        **sample["properties"],
        "correlation_id": task_id,
        "delivery_tag": str(uuid4()),
    }
    body = base64.b64encode(dumps([[argument], {}, _NO_CALLBACKS])).decode()
    return queue, dumps({**sample, "body": body, "headers": headers, "properties": properties})


_NO_CALLBACKS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


@cache
def _sample(task: str) -> tuple[str, dict[str, Any]]:
    """A message of that task, as the installed Celery and kombu make it."""
    queue: str = app.amqp.router.route({}, task)["queue"].name
    with Connection("memory://") as connection:
        channel: Any = connection.channel()
        channel.queue_declare(queue)
        app.send_task(task, args=("",), queue=queue, ignore_result=True, connection=connection)
        sample = channel._get(queue)  # noqa: SLF001  (the one door to a raw message)
    return queue, loads(dumps(sample))


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, client_name="slipway-web"
    )
