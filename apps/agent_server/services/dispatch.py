"""Messages to engines and stream readers: threads to run, runs to cancel, ended runs.

Required work is a row, so the sweeper replaces a lost message. Sending therefore neither fails nor
delays a request: a web process passes the message to its loop's dispatcher; another process sends
it directly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from uuid import UUID

import redis

from apps.agent_server.messaging import messages, redis_dispatcher
from apps.agent_server.messaging.redis_connection import Command, blocking_client
from apps.agent_server.streaming import streams
from apps.core.json import dumps

log = logging.getLogger(__name__)

MAX_CLOCK_SKEW_MS = 1_000


def enqueue_thread(thread_pk: UUID) -> None:
    """Queue the thread for the engines, by primary key."""
    _send(messages.enqueue_thread(thread_pk))


def enqueue_threads(thread_pks: Iterable[UUID]) -> None:
    """Queue several threads; a queued thread keeps its place."""
    if thread_pks := list(thread_pks):
        _send(messages.enqueue_thread(*thread_pks))


def schedule_run(seconds: float) -> None:
    """Tell the engines that a run is due after this time."""
    _send(messages.schedule_run(seconds))


def cancel_run(run_id: UUID) -> None:
    """Make the engine that executes the run read its `cancel_action`."""
    _send(messages.cancel_run(run_id))


def announce_run_end(run_id: UUID, status: str) -> None:
    """Publish the end of a run that no engine executed."""
    # The id exceeds those of a worker with a faster clock.
    name = streams.stream_key(run_id)
    event_id = streams.EventId(time.time_ns() // 1_000_000 + MAX_CLOCK_SKEW_MS, 0)
    batch = streams.pack_batch(event_id, [[streams.END.decode(), dumps({"status": status})]])
    _send(
        ("XADD", name, str(event_id), streams.BATCH_FIELD, batch),
        ("PUBLISH", name, batch),
        ("EXPIRE", name, streams.ENDED_STREAM_TTL_SECONDS),
    )


def announce_thread_deleted(thread_pk: UUID) -> None:
    """Publish that a thread was deleted."""
    _send(streams.publish_thread_deleted(thread_pk))


def announce_task_changed(thread_pk: UUID) -> None:
    """Publish that a paused A2A task of the thread was cancelled."""
    _send(streams.publish_task_changed(thread_pk))


def publish(channel: str, payload: bytes) -> None:
    """Publish a message to the listeners of a channel in all web processes."""
    _send(("PUBLISH", channel, payload))


def _send(*commands: Command) -> None:
    dispatcher = redis_dispatcher.process_dispatcher()
    if dispatcher is not None:
        dispatcher.send(*commands)
        return
    try:
        messages.send_commands(blocking_client("slipway-web"), *commands)
    except redis.RedisError as error:
        log.warning("Redis rejected a message, which the sweeper will replace: %s", error)
