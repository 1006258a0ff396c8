"""The writing end of streams, one for all runs of a worker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import hiredis
from django.conf import settings

from apps.agent_server.messaging.redis_connection import Command, RedisLink, RedisLost
from apps.agent_server.streaming.streams import (
    BEGINNING,
    END,
    ENDED_SECONDS,
    FIELD,
    KEPT_BATCHES,
    LIVE_SECONDS,
    PER_MILLISECOND,
    EventId,
    key,
    pack,
)
from apps.agent_server.streaming.thread_notices import RunBegins, run_begins
from apps.core.json import dumps

log = logging.getLogger(__name__)

RESULT_LIMIT = 256 * 1024
ANSWER_SECONDS = 5.0
MOST_IN_BATCH = PER_MILLISECOND // 2
_FOR_NOW = ("LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN")
"""How Redis begins a refusal that will pass."""

Written = tuple[str, bytes] | tuple[str, bytes, bytes | None, str | None]
Keep = Callable[[UUID, EventId, bytes], None]


@dataclass(slots=True)
class _Open:
    """What a run has said since its last batch."""

    events: list[Written] = field(default_factory=list)
    resumable: bool = False
    thread: UUID | None = None
    graph_id: str = ""


@dataclass(slots=True)
class Sealed:
    """A batch on its way: its ids are given and stay, however often it has to be sent."""

    run_id: UUID
    last: EventId
    before: EventId | None
    events: list[Written]
    packed: bytes
    resumable: bool
    ended: bool
    thread: UUID | None = None
    graph_id: str = ""

    def commands(self) -> list[Command]:
        name = key(self.run_id)
        lifetime = LIVE_SECONDS
        if self.ended:
            resumable = settings.RESUMABLE_STREAM_TTL_SECONDS
            lifetime = resumable if self.resumable else ENDED_SECONDS
        commands: list[Command] = [
            ("XADD", name, "MAXLEN", "~", KEPT_BATCHES, str(self.last), FIELD, self.packed),
            ("PUBLISH", name, self.packed),
            ("EXPIRE", name, lifetime),
        ]
        if self.thread is not None:
            notice = RunBegins(self.run_id, self.graph_id, self.resumable)
            commands.append(run_begins(self.thread, notice))
        return commands


class StreamWriter:
    """Writes the streams of many runs from one event loop.

    Events are sent at the loop's next turn, all that a run produced by then as one batch. While
    Redis is away they wait, within a limit, and go out in order when it is back. Nothing here
    raises for Redis' sake: a stream is a convenience, never the record.

    `keep` is given every batch of a resumable run when its ids are made.
    """

    HIGH_WATER = 8 * 1024 * 1024
    LIMIT_WHILE_AWAY = 32 * 1024 * 1024

    def __init__(self, url: str | None = None, keep: Keep | None = None) -> None:
        self._link = RedisLink(url or settings.REDIS_URL)
        self._keep = keep
        self._said: dict[UUID, _Open] = {}
        self._sealed: deque[Sealed] = deque()
        self._size = 0
        self._last: dict[UUID, EventId] = {}
        self._clock = BEGINNING
        self._sender: asyncio.Task[None] | None = None
        self._relieved = asyncio.Event()
        self._relieved.set()

    # What a run says

    def begin(
        self,
        run_id: UUID,
        events: Iterable[tuple[str, bytes]],
        *,
        thread: UUID,
        graph_id: str,
        is_first: bool,
        resumable: bool,
    ) -> None:
        """Say the first events of an attempt; the readers of its thread are told.

        Before those of the first attempt there is nothing; what an earlier one said last, perhaps
        elsewhere, is not known here.
        """
        if is_first:
            self._last[run_id] = BEGINNING
        self.put(run_id, events, resumable=resumable)
        said = self._said[run_id]
        said.thread, said.graph_id = thread, graph_id

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
        said = self._said.get(run_id)
        if said is None:
            said = self._said[run_id] = _Open()
        said.resumable = said.resumable or resumable
        size = 0
        for name, data in events:
            said.events.append((name, data))
            size += len(name) + len(data)
        self._size += size
        if self._size > self.HIGH_WATER and self._link.is_up:
            self._relieved.clear()
        self._wake()
        return self._relieved.is_set()

    async def relieved(self) -> None:
        """Return when less is under way than this writer likes to hold."""
        await self._relieved.wait()

    def close_stream(
        self,
        run_id: UUID,
        status: str,
        *,
        events: Iterable[tuple[str, bytes]] = (),
        result: bytes | None = None,
        left: str | None = None,
        resumable: bool = False,
    ) -> Sealed:
        """Make the run's last batch, `events` and the end, to be `released` after the commit.

        `result` is the JSON body that a caller of `wait` gets. A large one is left out, and read
        from PostgreSQL by who needs it. `left` is the status that the run leaves its thread in.
        """
        if result is not None and len(result) > RESULT_LIMIT:
            result = None
        self._seal(run_id)
        end: Written = (END.decode(), dumps({"status": status}), result, left)
        sealed = self._batch(run_id, _Open([*events, end], resumable), ended=True)
        self._last.pop(run_id, None)
        return sealed

    def release(self, sealed: Sealed) -> None:
        """Send a batch that was held back."""
        self._sealed.append(sealed)
        self._size += len(sealed.packed)
        self._wake()

    async def end(
        self, run_id: UUID, status: str, *, result: bytes | None = None, resumable: bool = False
    ) -> None:
        """Append the last event. To be called after the run's final state is committed."""
        self.release(self.close_stream(run_id, status, result=result, resumable=resumable))

    def forget(self, run_id: UUID) -> None:
        """The run is somebody else's now."""
        self._seal(run_id)
        self._last.pop(run_id, None)

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

    # Making batches

    def _seal(self, run_id: UUID) -> None:
        said = self._said.pop(run_id, None)
        if said is not None and said.events:
            for start in range(0, len(said.events), MOST_IN_BATCH):
                part = _Open(said.events[start : start + MOST_IN_BATCH], said.resumable)
                if not start:
                    part.thread, part.graph_id = said.thread, said.graph_id
                self._sealed.append(self._batch(run_id, part))

    def _batch(self, run_id: UUID, said: _Open, *, ended: bool = False) -> Sealed:
        before = self._last.get(run_id)
        last = self._last[run_id] = self._next_id(len(said.events))
        packed = pack(last, said.events, before)
        if said.resumable and self._keep is not None:
            self._keep(run_id, last, _without_result(last, said.events, before) or packed)
        return Sealed(
            run_id,
            last,
            before,
            said.events,
            packed,
            said.resumable,
            ended,
            said.thread,
            said.graph_id,
        )

    def _next_id(self, count: int) -> EventId:
        """The id of the last of `count` events, above every id given before."""
        now = time.time_ns() // 1_000_000
        ms, n = self._clock
        if now > ms:
            ms, n = now, -1
        elif n + count >= PER_MILLISECOND:
            ms, n = ms + 1, -1
        self._clock = EventId(ms, n + count)
        return self._clock

    # Sending them

    def _wake(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all(), name="stream-writer")

    async def _send_all(self) -> None:
        pause = 0.05
        while self._said or self._sealed:
            for run_id in list(self._said):
                self._seal(run_id)
            batches, self._sealed, self._size = list(self._sealed), deque(), 0
            self._relieved.set()
            left = await self._send(batches)
            if not left:
                pause = 0.05
                continue
            self._sealed.extendleft(reversed(left))
            self._size += sum(len(batch.packed) for batch in left)
            self._forget_the_oldest()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _send(self, batches: list[Sealed]) -> list[Sealed]:
        """Send the batches and return those that Redis did not take, in their order."""
        commands: list[Command] = []
        places: list[int] = []
        for batch in batches:
            places.append(len(commands))
            commands += batch.commands()
        try:
            if not self._link.is_up:
                await self._link.connect()
            replies = self._link.send(commands)
            await self._link.drained()
            _, silent = await asyncio.wait(replies, timeout=ANSWER_SECONDS)
            if silent:
                self._link.close()
        except RedisLost:
            return batches
        left: list[Sealed] = []
        for batch, place in zip(batches, places, strict=True):
            error = replies[place].exception()
            if isinstance(error, hiredis.ReplyError) and "equal or smaller" in str(error):
                left += await self._numbered_anew(batch)
            elif isinstance(error, hiredis.ReplyError) and not str(error).startswith(_FOR_NOW):
                log.error("Redis refused events: %s", error)  # e.g. its memory is full
            elif error is not None:
                left.append(batch)
        return left

    async def _numbered_anew(self, batch: Sealed) -> list[Sealed]:
        """A batch that Redis has already, or that comes after what a faster clock wrote."""
        name, last = key(batch.run_id), str(batch.last)
        try:
            [found, newest] = await self._link.run(
                ("XRANGE", name, last, last), ("XREVRANGE", name, "+", "-", "COUNT", 1)
            )
        except (RedisLost, hiredis.ReplyError):
            return [batch]
        if found:  # it got there before its answer was lost; readers drop what comes twice
            return []
        if newest:
            self._clock = max(self._clock, EventId.parse(newest[0][0].decode()))
            batch.last, batch.before = self._next_id(len(batch.events)), None
            batch.packed = pack(batch.last, batch.events)
            if batch.run_id in self._last:
                self._last[batch.run_id] = max(batch.last, self._last[batch.run_id])
        return [batch]

    def _forget_the_oldest(self) -> None:
        """Keep within the limit; readers learn of a run's end from PostgreSQL."""
        while self._size > self.LIMIT_WHILE_AWAY and self._sealed:
            batch = self._sealed.popleft()
            self._size -= len(batch.packed)
            log.warning("events of run %s were dropped while Redis was away", batch.run_id)


def _without_result(last: EventId, events: list[Written], before: EventId | None) -> bytes | None:
    """The last batch without the result, which PostgreSQL has; None for any other batch."""
    *others, end = events
    if end[0] != END.decode():
        return None
    stripped: list[Any] = [*others, (end[0], end[1], None, end[3] if len(end) > 3 else None)]
    return pack(last, stripped, before)
