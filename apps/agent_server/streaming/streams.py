"""A run's live stream: how it is written down, in Redis and beside it.

Each run has a Redis stream and a channel, both named `slipway:run:<run id>`. An entry is a batch of
events; the same bytes go out on the channel. Every event has an id `<ms>-<n>`, unique and growing;
the entry carries the id of its last event, so a reader who has seen some id asks for the entries
after it. A batch also names the event before it, so that a reader sees when some are missing. The
last event is named `end`. Redis may lose all of this at any time: the run's row in PostgreSQL is
the record, and a resumable run's events are kept there as well.
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
"""How long the stream of a run that writes nothing more is kept, should its end never come."""
ENDED_STREAM_TTL_SECONDS = 15
"""How long a stream that nobody may resume outlives its run: for readers who were cut off."""
MAX_STREAM_BATCHES = 1_000
"""In Redis; what a resumable run wrote before is read from PostgreSQL."""
IDS_PER_MILLISECOND = 1 << 14
"""Ids that one millisecond has."""
_FIRST_MS = 1_735_689_600_000  # 2025
_ID = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")


def stream_key(run_id: UUID | str) -> str:
    """The name of the run's stream and of its channel."""
    return f"slipway:run:{run_id}"


class EventId(NamedTuple):
    """Where an event stands in its stream."""

    ms: int
    n: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`ValueError` for anything but `<ms>-<n>` or `<ms>`."""
        match = _ID.fullmatch(text)
        if match is None:
            raise ValueError("not an event's id")
        return cls(int(match[1]), int(match[2] or 0))

    @classmethod
    def at(cls, position: int) -> Self:
        """The id with that position; the beginning for positions before all ids."""
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
    """One event as it is read back.

    With the end come, for who waits for it, the run's result when it is small, and the status that
    the run left its thread in.
    """

    id: EventId
    name: bytes
    data: bytes
    result: bytes | None = None
    left: bytes | None = None


class Batch(NamedTuple):
    """Events that were written together."""

    events: list[Event]
    before: EventId | None
    """The event that came before them: `BEGINNING` for the first; None when nobody knows."""
    size: int

    @property
    def last(self) -> EventId:
        return self.events[-1].id


def pack_batch(
    last: EventId,
    events: Sequence[Sequence[bytes | str | None]],
    before: EventId | None = None,
) -> bytes:
    """A batch whose last event has that id: `[ms, n, [[name, data], ...], before]`."""
    packed: bytes = msgpack.packb([last.ms, last.n, events, before])
    return packed


def unpack_batch(packed: bytes) -> Batch:
    ms, last, events, *rest = msgpack.unpackb(packed, raw=True)
    before = EventId._make(rest[0]) if rest and rest[0] else None
    if len(events) == 1:
        return Batch([Event(EventId(ms, last), *events[0])], before, len(packed))
    first = last - len(events) + 1
    made = [Event(EventId(ms, first + i), *event) for i, event in enumerate(events)]
    return Batch(made, before, len(packed))


def unpack_events(packed: bytes) -> list[Event]:
    return unpack_batch(packed).events


class RunStarted(NamedTuple):
    """A worker has begun an attempt of the run."""

    run_id: UUID
    graph_id: str
    is_resumable: bool
    """Whether what it says is kept in PostgreSQL."""


class StateUpdated(NamedTuple):
    """Somebody changed the thread's state, not a run; `state` is the snapshot's JSON."""

    state: bytes


class ThreadDeleted(NamedTuple):
    """The thread was deleted."""


Notice = RunStarted | StateUpdated | ThreadDeleted


def thread_channel(thread_pk: UUID) -> str:
    return f"slipway:thread:{thread_pk}"


def run_started(thread_pk: UUID, run: RunStarted) -> Command:
    kept = b"\1" if run.is_resumable else b"\0"
    return (
        "PUBLISH",
        thread_channel(thread_pk),
        b"r" + run.run_id.bytes + kept + run.graph_id.encode(),
    )


def state_updated(thread_pk: UUID, state: bytes) -> Command:
    return ("PUBLISH", thread_channel(thread_pk), b"s" + state)


def thread_deleted(thread_pk: UUID) -> Command:
    return ("PUBLISH", thread_channel(thread_pk), b"g")


def unpack_notice(payload: bytes) -> Notice:
    kind, said = payload[:1], payload[1:]
    if kind == b"s":
        return StateUpdated(said)
    if kind == b"g":
        return ThreadDeleted()
    return RunStarted(UUID(bytes=said[:16]), said[17:].decode(), said[16:17] == b"\1")
