"""Messages between web processes and engines, and their Redis keys.

- Threads with a pending run are in a sorted set, ordered by arrival. A thread is in it once, so
  repeating a message has no effect. Engines take as many threads as they have capacity for.
- Graph calls are in a list. A response goes to the channel of the requesting process, or into a
  separate list if it is too large for a channel.
- Ids of runs to cancel are published to all engines.
- Delays of scheduled runs are published to all engines.

Messages may be lost: required work is a row, which the sweeper finds.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Self
from uuid import UUID

import msgpack
import redis
from django.conf import settings
from redis.asyncio.connection import parse_url

from apps.agent_server.messaging.redis_connection import Command

RUNS = "slipway:runs"
CALLS = "slipway:calls"
# Redis publishes across its databases, of which another installation may have one.
_DATABASE = parse_url(settings.REDIS_URL).get("db", 0)
CANCELS = f"slipway:cancels:{_DATABASE}"
SCHEDULES = f"slipway:alarms:{_DATABASE}"
CALL_QUEUE_TTL_SECONDS = 180
"""Lifetime of the queue of graph calls when no engine reads it."""
RESPONSE_TTL_SECONDS = 60
MAX_CHANNEL_BYTES = 1024 * 1024
"""Maximum size of a published response; Redis disconnects subscribers with a full buffer."""
MAX_CLOCK_SKEW_SECONDS = 10
"""Maximum difference between the clocks of two machines."""

# Error names in the response of an edit call.
THREAD_BUSY = "ThreadBusy"
THREAD_GONE = "ThreadGone"
EDIT_REFUSED = "EditRefused"
"""The graph rejected the edit; the message is for the caller."""


def enqueue_thread(*threads: UUID) -> Command:
    """Queue threads with a pending run, by primary key. A queued thread keeps its place."""
    now = time.time_ns() // 1_000
    return ("ZADD", RUNS, "NX", *[part for thread in threads for part in (now, thread.bytes)])


def cancel_run(run_id: UUID) -> Command:
    """The run has a `cancel_action`."""
    return ("PUBLISH", CANCELS, run_id.bytes)


def schedule_run(seconds: float) -> Command:
    """A run is due after this time."""
    return ("PUBLISH", SCHEDULES, str(seconds))


def send_commands(client: redis.Redis, *commands: Command) -> None:
    """Send the commands and wait for the replies. Raises `redis.RedisError`."""
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        pipeline.execute()


class CallRequest(NamedTuple):
    """A graph call to a revision."""

    id: bytes
    response_channel: str
    """The channel of the requesting process."""
    sent_at: float
    seconds: float
    """How long the caller waits."""
    revision_id: bytes
    deployment_id: bytes
    workspace_id: bytes
    graph_id: str
    method: str
    thread: bytes
    """The primary key of the thread; empty for a call without a thread."""
    thread_id: str
    params: bytes
    """JSON."""

    @property
    def is_late(self) -> bool:
        """Whether the caller has stopped waiting."""
        return time.time() > self.sent_at + self.seconds + MAX_CLOCK_SKEW_SECONDS

    @property
    def response_key(self) -> str:
        """The list for a response that is too large for a channel."""
        return f"slipway:answer:{self.id.hex()}"

    def commands(self) -> list[Command]:
        return [
            ("RPUSH", CALLS, msgpack.packb(tuple(self))),
            ("EXPIRE", CALLS, CALL_QUEUE_TTL_SECONDS),
        ]

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        return cls(*msgpack.unpackb(packed))


class CallResponse(NamedTuple):
    """The response to a graph call."""

    id: bytes
    succeeded: bool
    body: bytes | None
    """JSON; None if it is in the list, because it is too large for a channel."""

    def commands(self, request: CallRequest) -> list[Command]:
        """The commands that deliver the response to the caller of the request."""
        packed = msgpack.packb(tuple(self))
        if len(packed) <= MAX_CHANNEL_BYTES:
            return [("PUBLISH", request.response_channel, packed)]
        return [
            ("RPUSH", request.response_key, packed),
            ("EXPIRE", request.response_key, RESPONSE_TTL_SECONDS),
            (
                "PUBLISH",
                request.response_channel,
                msgpack.packb(tuple(self._replace(body=None))),
            ),
        ]

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        return cls(*msgpack.unpackb(packed))
