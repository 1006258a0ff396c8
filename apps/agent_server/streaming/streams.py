"""The format of a run's live stream in Redis, and of the notices on a thread's channel.

Each run has a Redis stream and a channel, both named `slipway:run:<run id>`. An entry is a batch of
events; the same bytes are published on the channel. Every event has a unique, increasing id
`<ms>-<n>`. An entry has the id of its last event, so a reader continues with the entries after its
last id. A batch also names the event before it, so that a reader detects missing ones. The last
event is named `end`. Redis may lose all of this at any time: the run's row in PostgreSQL is the
record, and PostgreSQL also stores the events of resumable runs.

A thread has a channel `slipway:thread:<key of its row>` for started runs and edited states. Its
notices are not stored: after a lost connection, readers query the runs in PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Self
from uuid import UUID

import msgpack

from apps.agent_server.messaging.redis_connection import Command

END = b"end"
BATCH_FIELD = b"b"
STREAM_TTL_SECONDS = 24 * 3600
"""Lifetime of the stream of a run that writes no further event, not even its end."""
ENDED_STREAM_TTL_SECONDS = 15
"""Lifetime of a non-resumable stream after its run, for readers that reconnect."""
MAX_STREAM_BATCHES = 1_000
"""Limit in Redis; older events of a resumable run are read from PostgreSQL."""
IDS_PER_MILLISECOND = 1 << 14
_FIRST_MS = 1_735_689_600_000  # 2025
_ID = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")


def stream_key(run_id: UUID | str) -> str:
    """The key of the run's stream, which is also the name of its channel."""
    return f"slipway:run:{run_id}"


class EventId(NamedTuple):
    """The position of an event in its stream."""

    ms: int
    n: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `<ms>-<n>` or `<ms>`. Raises `ValueError`."""
        match = _ID.fullmatch(text)
        if match is None:
            raise ValueError("not an event id")
        return cls(int(match[1]), int(match[2] or 0))

    @classmethod
    def from_position(cls, position: int) -> Self:
        """The id with this position; `BEGINNING` for a position before all ids."""
        ms, n = divmod(position, IDS_PER_MILLISECOND)
        return cls(ms + _FIRST_MS, n) if position > 0 else cls(0, 0)

    @property
    def position(self) -> int:
        """The id as one number, in the same order; below 2^53 until 2042."""
        return max(0, self.ms - _FIRST_MS) * IDS_PER_MILLISECOND + self.n

    def __str__(self) -> str:
        return f"{self.ms}-{self.n}"


BEGINNING = EventId(0, 0)


class Event(NamedTuple):
    """One event of a stream.

    The `end` event also has the run's result, unless that is large, and the thread's status after
    the run.
    """

    id: EventId
    name: bytes
    data: bytes
    result: bytes | None = None
    thread_status: bytes | None = None


class Batch(NamedTuple):
    """The events of one stream entry."""

    events: list[Event]
    previous: EventId | None
    """The previous event: `BEGINNING` for the first batch; None if it is unknown."""
    size: int

    @property
    def last(self) -> EventId:
        return self.events[-1].id


def pack_batch(
    last: EventId,
    events: Sequence[Sequence[bytes | str | None]],
    before: EventId | None = None,
) -> bytes:
    """Pack a batch whose last event has the id `last`: `[ms, n, [[name, data], ...], before]`."""
    packed: bytes = msgpack.packb([last.ms, last.n, events, before])
    return packed


def unpack_batch(packed: bytes) -> Batch:
    ms, last_n, events, previous = msgpack.unpackb(packed, raw=True)
    before = EventId._make(previous) if previous else None
    if len(events) == 1:
        return Batch([Event(EventId(ms, last_n), *events[0])], before, len(packed))
    first = last_n - len(events) + 1
    batch = [Event(EventId(ms, first + i), *event) for i, event in enumerate(events)]
    return Batch(batch, before, len(packed))


class RunStarted(NamedTuple):
    """A worker has begun an attempt of the run."""

    run_id: UUID
    graph_id: str
    is_resumable: bool
    """Whether PostgreSQL stores its events."""


class StateUpdatedMessage(NamedTuple):
    """A client edited the thread's state; `state` is the snapshot as JSON."""

    state: bytes


class ThreadDeleted(NamedTuple):
    """The thread was deleted."""


class TaskChanged(NamedTuple):
    """A paused A2A task of the thread was cancelled, which no run reports."""


Notice = RunStarted | StateUpdatedMessage | ThreadDeleted | TaskChanged


def thread_channel(thread_pk: UUID) -> str:
    return f"slipway:thread:{thread_pk}"


def publish_run_started(thread_pk: UUID, run: RunStarted) -> Command:
    resumable = b"\1" if run.is_resumable else b"\0"
    return (
        "PUBLISH",
        thread_channel(thread_pk),
        b"r" + run.run_id.bytes + resumable + run.graph_id.encode(),
    )


def publish_state_updated(thread_pk: UUID, state: bytes) -> Command:
    return ("PUBLISH", thread_channel(thread_pk), b"s" + state)


def publish_thread_deleted(thread_pk: UUID) -> Command:
    return ("PUBLISH", thread_channel(thread_pk), b"g")


def publish_task_changed(thread_pk: UUID) -> Command:
    return ("PUBLISH", thread_channel(thread_pk), b"t")


def unpack_notice(payload: bytes) -> Notice:
    kind, body = payload[:1], payload[1:]
    if kind == b"s":
        return StateUpdatedMessage(body)
    if kind == b"g":
        return ThreadDeleted()
    if kind == b"t":
        return TaskChanged()
    return RunStarted(UUID(bytes=body[:16]), body[17:].decode(), body[16:17] == b"\1")
