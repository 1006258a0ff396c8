"""Messages to the engines: a thread has something to run, a run should stop.

What must happen is a row; a message that Redis loses, or never gets, is made good by the sweeper.
So sending never fails the request, nor makes it wait: in a web process the loop's dispatcher takes
the message along, elsewhere it is sent here and now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import cache
from uuid import UUID

import redis
from django.conf import settings

from apps.agent_server.messaging import messages, redis_dispatcher
from apps.agent_server.messaging.redis_connection import Command
from apps.agent_server.streaming import streams
from apps.core.json import dumps

log = logging.getLogger(__name__)

MAX_CLOCK_SKEW_MS = 1_000


def enqueue_thread(thread_pk: UUID) -> None:
    """Have an engine look at the thread's queue; the row's own key, not the client's id."""
    _send(messages.enqueue_thread(thread_pk))


def enqueue_threads(thread_pks: Iterable[UUID]) -> None:
    """The same for many; those that are named already keep their place."""
    if thread_pks := list(thread_pks):
        _send(messages.enqueue_thread(*thread_pks))


def schedule_run(seconds: float) -> None:
    """Have the engines look for a run that is due in so many seconds."""
    _send(messages.schedule_run(seconds))


def cancel_run(run_id: UUID) -> None:
    """Have the engine that executes the run read its `cancel_action` now."""
    _send(messages.cancel_run(run_id))


def announce_run_end(run_id: UUID, status: str) -> None:
    """Tell the readers of a run that ended without an engine."""
    # Ahead of what a worker with a faster clock may have said.
    name, now = (
        streams.stream_key(run_id),
        streams.EventId(time.time_ns() // 1_000_000 + MAX_CLOCK_SKEW_MS, 0),
    )
    batch = streams.pack_batch(now, [[streams.END.decode(), dumps({"status": status})]])
    _send(
        ("XADD", name, str(now), streams.BATCH_FIELD, batch),
        ("PUBLISH", name, batch),
        ("EXPIRE", name, streams.ENDED_STREAM_TTL_SECONDS),
    )


def announce_thread_deleted(thread_pk: UUID) -> None:
    """Tell the readers of a thread that it was deleted."""
    _send(streams.thread_deleted(thread_pk))


def _send(*commands: Command) -> None:
    mail = redis_dispatcher.process_dispatcher()
    if mail is not None:
        mail.send(*commands)
        return
    try:
        messages.send_commands(_client(), *commands)
    except redis.RedisError as error:
        log.warning("a message waits for the sweeper: %s", error)


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, client_name="slipway-web"
    )
