"""A run's live stream in Redis: what is written, how, and how it is read back.

Each run has a Redis stream and a channel, both named `slipway:run:<run id>`. An entry is a batch of
events; the same bytes go out on the channel. Every event has an id `<ms>-<n>`, unique and growing;
the entry carries the id of its last event, so a reader who has seen some id asks for the entries
after it. The last event is named `end`. Redis may lose all of this at any time: the run's row in
PostgreSQL is the record.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self
from uuid import UUID

import hiredis
import msgpack
from django.conf import settings

from apps.agent_server.redis_link import Command, RedisLink, RedisLost
from apps.core.json import dumps

log = logging.getLogger(__name__)

END = b"end"
FIELD = b"b"
LIVE_SECONDS = 24 * 3600
"""How long the stream of a run that writes nothing more is kept, should its end never come."""
ENDED_SECONDS = 15
"""How long a stream that nobody may resume outlives its run: for readers who were cut off."""
KEPT_BATCHES = 1_000
KEPT_BATCHES_RESUMABLE = 50_000
RESULT_LIMIT = 256 * 1024
ANSWER_SECONDS = 5.0
_ID = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")


def key(run_id: UUID | str) -> str:
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

    def __str__(self) -> str:
        return f"{self.ms}-{self.n}"


BEGINNING = EventId(0, 0)


class Event(NamedTuple):
    """One event as it is read back; `result` comes with the end only, when it is small."""

    id: EventId
    name: bytes
    data: bytes
    result: bytes | None = None


def pack(last: EventId, events: Sequence[Sequence[bytes | str | None]]) -> bytes:
    """A batch whose last event has that id: `[ms, n, [[name, data], ...]]`."""
    packed: bytes = msgpack.packb([last.ms, last.n, events])
    return packed


def unpack(batch: bytes) -> list[Event]:
    ms, last, events = msgpack.unpackb(batch, raw=True)
    first = last - len(events) + 1
    return [Event(EventId(ms, first + i), *event) for i, event in enumerate(events)]


@dataclass(slots=True)
class _Batch:
    """What waits to be sent of one run."""

    events: list[tuple[str, bytes] | tuple[str, bytes, bytes | None]] = field(default_factory=list)
    size: int = 0
    resumable: bool = False
    ended: bool = False


class StreamWriter:
    """Writes the streams of many runs from one event loop.

    Events are sent at the loop's next turn, all that a run produced by then as one batch. While
    Redis is away they wait, within a limit, and go out in order when it is back. Nothing here
    raises for Redis' sake: a stream is a convenience, never the record.
    """

    HIGH_WATER = 8 * 1024 * 1024
    LIMIT_WHILE_AWAY = 32 * 1024 * 1024

    def __init__(self, url: str | None = None) -> None:
        self._link = RedisLink(url or settings.REDIS_URL)
        self._outbox: dict[UUID, _Batch] = {}
        self._size = 0
        self._clock = EventId(0, 0)
        self._sender: asyncio.Task[None] | None = None
        self._relieved = asyncio.Event()
        self._relieved.set()

    async def append(
        self, run_id: UUID, events: Iterable[tuple[str, bytes]], *, resumable: bool = False
    ) -> None:
        """Put `(name, JSON on one line)` events at the end of the run's stream.

        Returns once they are queued; waits only while too much is under way.
        """
        self.put(run_id, events, resumable=resumable)
        await self.relieved()

    def put(
        self, run_id: UUID, events: Iterable[tuple[str, bytes]], *, resumable: bool = False
    ) -> bool:
        """`append` without the wait; False asks the caller to wait until it is `relieved`."""
        batch = self._batch(run_id, resumable=resumable)
        for name, data in events:
            batch.events.append((name, data))
            self._grow(batch, len(name) + len(data))
        self._wake()
        return self._relieved.is_set()

    async def relieved(self) -> None:
        """Return when less is under way than this writer likes to hold."""
        await self._relieved.wait()

    async def end(
        self, run_id: UUID, status: str, *, result: bytes | None = None, resumable: bool = False
    ) -> None:
        """Append the last event. To be called after the run's final state is committed.

        `result` is the JSON body that a caller of `wait` gets. A large one is left out, and read
        from PostgreSQL by who needs it.
        """
        if result is not None and len(result) > RESULT_LIMIT:
            result = None
        batch = self._batch(run_id, resumable=resumable)
        data = dumps({"status": status})
        batch.events.append((END.decode(), data, result))
        batch.ended = True
        self._grow(batch, len(data) + len(result or b""))
        self._wake()

    async def flushed(self) -> None:
        """Return when nothing is queued any more, or Redis does not take it."""
        while self._sender is not None and not self._sender.done():
            await asyncio.wait([self._sender], timeout=1)
            if not self._link.is_up:
                return

    async def aclose(self) -> None:
        await self.flushed()
        if self._sender is not None:
            self._sender.cancel()
        self._link.close()

    # Inside

    def _batch(self, run_id: UUID, *, resumable: bool) -> _Batch:
        batch = self._outbox.get(run_id)
        if batch is None:
            batch = self._outbox[run_id] = _Batch()
        batch.resumable = batch.resumable or resumable
        return batch

    def _grow(self, batch: _Batch, size: int) -> None:
        batch.size += size
        self._size += size
        if self._size > self.HIGH_WATER and self._link.is_up:
            self._relieved.clear()

    def _wake(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all(), name="stream-writer")

    async def _send_all(self) -> None:
        pause = 0.05
        while self._outbox:
            outbox, self._outbox, self._size = self._outbox, {}, 0
            self._relieved.set()
            left = await self._send(outbox)
            if not left:
                pause = 0.05
                continue
            self._put_back(left)
            self._forget_the_oldest()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _send(self, outbox: dict[UUID, _Batch]) -> dict[UUID, _Batch]:
        """Send the batches and return those that Redis did not take."""
        commands: list[Command] = []
        for run_id, batch in outbox.items():
            commands += self._commands(run_id, batch)
        try:
            if not self._link.is_up:
                await self._link.connect()
            replies = self._link.send(commands)
            await self._link.drained()
            _, silent = await asyncio.wait(replies, timeout=ANSWER_SECONDS)
            if silent:
                self._link.close()
        except RedisLost:
            return outbox
        left = {}
        for (run_id, batch), reply in zip(outbox.items(), replies[::3], strict=True):
            error = reply.exception()
            if error is None:
                continue
            if isinstance(error, hiredis.ReplyError) and "equal or smaller" in str(error):
                await self._catch_up_with(run_id)
            elif isinstance(error, hiredis.ReplyError):
                log.error("Redis refused events: %s", error)  # e.g. its memory is full
                continue
            left[run_id] = batch
        return left

    def _commands(self, run_id: UUID, batch: _Batch) -> list[Command]:
        name, last = key(run_id), self._next_id(len(batch.events))
        packed = pack(last, batch.events)
        kept = KEPT_BATCHES_RESUMABLE if batch.resumable else KEPT_BATCHES
        lifetime = LIVE_SECONDS
        if batch.ended:
            resumable = settings.RESUMABLE_STREAM_TTL_SECONDS
            lifetime = resumable if batch.resumable else ENDED_SECONDS
        return [
            ("XADD", name, "MAXLEN", "~", kept, str(last), FIELD, packed),
            ("PUBLISH", name, packed),
            ("EXPIRE", name, lifetime),
        ]

    def _next_id(self, count: int) -> EventId:
        """The id of the last of `count` events, above every id given before."""
        now = time.time_ns() // 1_000_000
        ms, n = self._clock
        self._clock = EventId(now, count - 1) if now > ms else EventId(ms, n + count)
        return self._clock

    async def _catch_up_with(self, run_id: UUID) -> None:
        """An earlier attempt on a machine whose clock runs ahead wrote there before."""
        try:
            [entries] = await self._link.run(("XREVRANGE", key(run_id), "+", "-", "COUNT", 1))
        except (RedisLost, hiredis.ReplyError):
            return
        if entries:
            last = EventId.parse(entries[0][0].decode())
            self._clock = max(self._clock, last)

    def _put_back(self, left: dict[UUID, _Batch]) -> None:
        """Before what has come since, so that each run's order holds."""
        newer, self._outbox = self._outbox, left
        for run_id, batch in newer.items():
            older = self._outbox.setdefault(run_id, batch)
            if older is not batch:
                older.events += batch.events
                older.size += batch.size
                older.ended = older.ended or batch.ended
        self._size = sum(batch.size for batch in self._outbox.values())

    def _forget_the_oldest(self) -> None:
        """Keep within the limit; readers learn of a run's end from PostgreSQL."""
        while self._size > self.LIMIT_WHILE_AWAY and self._outbox:
            run_id = next(iter(self._outbox))
            self._size -= self._outbox.pop(run_id).size
            log.warning("events of run %s were dropped while Redis was away", run_id)
