"""What web processes and engines tell each other through Redis, and under which names.

- Threads that have a run to execute wait in a sorted set, by the time at which they came. A thread
  is in it once, however many runs it has and however often it is named again, so repeating a
  message costs nothing. Engines take as many as they have room for.
- Questions to graph hosts wait in a list. An answer goes to the channel of the process that asked,
  or, where nobody listens on one, into a list of its own.
- Runs that shall stop are named on a channel that every engine hears.
- When a run is planned for later, all engines hear on another in how many seconds that is.

Nothing depends on any of it: what must happen is a row, and the sweeper finds it.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Self
from uuid import UUID

import msgpack
import redis

from apps.agent_server.messaging.redis_connection import Command

RUNS = "slipway:runs"
CALLS = "slipway:calls"
CANCELS = "slipway:cancels"
SCHEDULES = "slipway:alarms"
CALL_QUEUE_TTL_SECONDS = 180
"""How long questions wait when no engine takes any."""
RESPONSE_TTL_SECONDS = 60
MAX_CHANNEL_BYTES = 1024 * 1024
"""Bytes of an answer; Redis cuts off a listener for whom too much is waiting."""
MAX_CLOCK_SKEW_SECONDS = 10
"""By how much the clocks of two machines may differ."""

# Error names in the response of an edit call.
THREAD_BUSY = "ThreadBusy"
THREAD_GONE = "ThreadGone"
EDIT_REFUSED = "EditRefused"
"""The graph rejected the edit; the message is for the caller."""


def enqueue_thread(*threads: UUID) -> Command:
    """The threads, by their rows' keys, have something to run. One that waits keeps its place."""
    now = time.time_ns() // 1_000
    return ("ZADD", RUNS, "NX", *[part for thread in threads for part in (now, thread.bytes)])


def cancel_run(run_id: UUID) -> Command:
    """The run has got a `cancel_action`."""
    return ("PUBLISH", CANCELS, run_id.bytes)


def schedule_run(seconds: float) -> Command:
    """A run is due in so many seconds."""
    return ("PUBLISH", SCHEDULES, str(seconds))


def send_commands(client: redis.Redis, *commands: Command) -> None:
    """Send from a thread, and wait until Redis has them; raises `redis.RedisError`."""
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        pipeline.execute()


class CallRequest(NamedTuple):
    """A question to the graph of a revision."""

    id: bytes
    answer_to: str
    """The channel of who asked; empty for a list of the question's own."""
    asked_at: float
    seconds: float
    """How long whoever asked will wait."""
    revision_id: bytes
    deployment_id: bytes
    workspace_id: bytes
    graph_id: str
    method: str
    thread: bytes
    """The key of the thread's row; empty for a question about no thread."""
    thread_id: str
    params: bytes
    """JSON."""

    @property
    def is_late(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return time.time() > self.asked_at + self.seconds + MAX_CLOCK_SKEW_SECONDS

    @property
    def place(self) -> str:
        """The list for the answer, where it does not go out on a channel."""
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
    """What became of a question."""

    id: bytes
    done: bool
    body: bytes | None
    """JSON; None when it is in the list, because it is too large for a channel."""

    def commands(self, asked: CallRequest) -> list[Command]:
        """What leaves the answer where it is waited for."""
        packed = msgpack.packb(tuple(self))
        if asked.answer_to and len(packed) <= MAX_CHANNEL_BYTES:
            return [("PUBLISH", asked.answer_to, packed)]
        commands: list[Command] = [
            ("RPUSH", asked.place, packed),
            ("EXPIRE", asked.place, RESPONSE_TTL_SECONDS),
        ]
        if asked.answer_to:
            where = msgpack.packb(tuple(self._replace(body=None)))
            commands.append(("PUBLISH", asked.answer_to, where))
        return commands

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        return cls(*msgpack.unpackb(packed))
