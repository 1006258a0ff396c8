"""The stream writer of a worker, which writes the streams of all its runs."""

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

from apps.agent_server.messaging.redis_connection import Command, RedisConnection, RedisLost
from apps.agent_server.streaming.stream_budget import KEEP, StreamBudget, StreamRetention
from apps.agent_server.streaming.streams import (
    BATCH_FIELD,
    BEGINNING,
    END,
    ENDED_STREAM_TTL_SECONDS,
    IDS_PER_MILLISECOND,
    MAX_STREAM_BATCHES,
    STREAM_TTL_SECONDS,
    EventId,
    RunStarted,
    pack_batch,
    publish_run_started,
    stream_key,
)
from apps.core.json import dumps

log = logging.getLogger(__name__)

MAX_RESULT_BYTES = 256 * 1024
REPLY_TIMEOUT_SECONDS = 5.0
MAX_BATCH_EVENTS = IDS_PER_MILLISECOND // 2
_TRANSIENT_ERRORS = ("LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN")
"""Prefixes of Redis errors that are worth a retry."""

StreamEvent = tuple[str, bytes] | tuple[str, bytes, bytes | None, str | None]
PersistBatch = Callable[[UUID, EventId, bytes], None]


@dataclass(slots=True)
class _OpenBatch:
    """Events of a run since its last batch."""

    events: list[StreamEvent] = field(default_factory=list)
    resumable: bool = False
    thread: UUID | None = None
    graph_id: str = ""


@dataclass(slots=True)
class PendingBatch:
    """A batch to be sent; its ids do not change when it is sent again."""

    run_id: UUID
    last: EventId
    previous: EventId | None
    events: list[StreamEvent]
    packed: bytes
    resumable: bool
    ended: bool
    thread: UUID | None = None
    graph_id: str = ""
    retention: StreamRetention = KEEP

    @property
    def lifetime_seconds(self) -> int:
        """How long the stream stays in Redis after this batch."""
        if not self.ended:
            return STREAM_TTL_SECONDS
        resumable: int = settings.RESUMABLE_STREAM_TTL_SECONDS
        return resumable if self.resumable else ENDED_STREAM_TTL_SECONDS

    def commands(self) -> list[Command]:
        name, last = stream_key(self.run_id), str(self.last)
        commands: list[Command] = []
        if self.retention.is_stored:
            limit = ("MAXLEN", "~", MAX_STREAM_BATCHES)
            commands.append(("XADD", name, *limit, last, BATCH_FIELD, self.packed))
        commands += [("PUBLISH", name, self.packed), ("EXPIRE", name, self.lifetime_seconds)]
        if self.retention.oldest is not None:
            commands.append(("XTRIM", name, "MINID", str(self.retention.oldest)))
        if self.thread is not None:
            notice = RunStarted(self.run_id, self.graph_id, self.resumable)
            commands.append(publish_run_started(self.thread, notice))
        return commands


class StreamWriter:
    """Writes the streams of many runs from one event loop.

    Events are sent in the loop's next iteration, as one batch per run. While Redis is unavailable
    they are queued up to a limit and sent in order later. No method raises because of Redis: a
    stream is not the system of record.

    `persist` is called with every batch of a resumable run once its ids are assigned.
    """

    HIGH_WATER_BYTES = 8 * 1024 * 1024
    MAX_OFFLINE_BYTES = 32 * 1024 * 1024

    def __init__(self, url: str | None = None, persist: PersistBatch | None = None) -> None:
        self._link = RedisConnection(url or settings.REDIS_URL)
        self._persist = persist
        self._open: dict[UUID, _OpenBatch] = {}
        self._pending: deque[PendingBatch] = deque()
        self._size = 0
        self._last: dict[UUID, EventId] = {}
        self._budget = StreamBudget()
        self._clock = BEGINNING
        self._sender: asyncio.Task[None] | None = None
        self._sent_waiters: list[asyncio.Future[None]] = []
        self._is_writable = asyncio.Event()
        self._is_writable.set()

    # Events of a run

    def start_stream(
        self,
        run_id: UUID,
        events: Iterable[tuple[str, bytes]],
        *,
        thread: UUID,
        deployment: UUID,
        graph_id: str,
        is_first: bool,
        resumable: bool,
    ) -> None:
        """Write the first events of an attempt and notify the readers of its thread.

        For a later attempt the previous event is unknown: another worker may have written it.
        """
        if is_first:
            self._last[run_id] = BEGINNING
        self._budget.open(run_id, deployment)
        self.write(run_id, events, resumable=resumable)
        batch = self._open[run_id]
        batch.thread, batch.graph_id = thread, graph_id

    async def append(
        self, run_id: UUID, events: Iterable[tuple[str, bytes]], *, resumable: bool = False
    ) -> None:
        """Append `(name, JSON on one line)` events to the run's stream.

        Returns once they are queued; waits while the queue is above its high-water mark.
        """
        self.write(run_id, events, resumable=resumable)
        await self.wait_writable()

    def write(
        self, run_id: UUID, events: Iterable[tuple[str, bytes]], *, resumable: bool = False
    ) -> bool:
        """`append` without the wait; on False, await `wait_writable` before the next write."""
        batch = self._open.get(run_id)
        if batch is None:
            batch = self._open[run_id] = _OpenBatch()
        batch.resumable = batch.resumable or resumable
        size = 0
        for name, data in events:
            batch.events.append((name, data))
            size += len(name) + len(data)
        self._size += size
        if self._size > self.HIGH_WATER_BYTES and self._link.is_up:
            self._is_writable.clear()
        self._wake()
        return self._is_writable.is_set()

    async def wait_writable(self) -> None:
        """Wait until the queue is below its high-water mark."""
        await self._is_writable.wait()

    async def wait_sent(self) -> None:
        """Wait until what is queued now was sent once, whether Redis is available or not."""
        if self._sender is None or self._sender.done():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._sent_waiters.append(waiter)
        await waiter

    def close_stream(
        self,
        run_id: UUID,
        status: str,
        *,
        events: Iterable[tuple[str, bytes]] = (),
        result: bytes | None = None,
        thread_status: str | None = None,
        resumable: bool = False,
    ) -> PendingBatch:
        """Create the run's last batch, which `send` sends after the commit.

        `result` is the JSON response of `wait`. A large one is omitted; callers read it from
        PostgreSQL. `thread_status` is the thread's status after the run.
        """
        if result is not None and len(result) > MAX_RESULT_BYTES:
            result = None
        self._close_batch(run_id)
        end: StreamEvent = (END.decode(), dumps({"status": status}), result, thread_status)
        pending = self._batch(run_id, _OpenBatch([*events, end], resumable), ended=True)
        self._last.pop(run_id, None)
        self._budget.end(run_id, pending.lifetime_seconds)
        return pending

    def send(self, pending: PendingBatch) -> None:
        """Send a batch of `close_stream`."""
        self._pending.append(pending)
        self._size += len(pending.packed)
        self._wake()

    async def end(
        self, run_id: UUID, status: str, *, result: bytes | None = None, resumable: bool = False
    ) -> None:
        """Append the last event. Call it after the run's end is committed."""
        self.send(self.close_stream(run_id, status, result=result, resumable=resumable))

    def discard(self, run_id: UUID) -> None:
        """Drop the state of a run that this worker no longer executes."""
        self._close_batch(run_id)
        self._last.pop(run_id, None)
        self._budget.end(run_id, ENDED_STREAM_TTL_SECONDS)

    async def flush(self) -> None:
        """Wait until all batches are sent or Redis is unavailable."""
        while self._sender is not None and not self._sender.done():
            await asyncio.wait([self._sender], timeout=1)
            if not self._link.is_up:
                return

    async def aclose(self) -> None:
        await self.flush()
        if self._sender is not None:
            self._sender.cancel()
        self._link.close()

    # Batches

    def _close_batch(self, run_id: UUID) -> None:
        batch = self._open.pop(run_id, None)
        if batch is not None and batch.events:
            for start in range(0, len(batch.events), MAX_BATCH_EVENTS):
                events = batch.events[start : start + MAX_BATCH_EVENTS]
                chunk = _OpenBatch(events, batch.resumable)
                if not start:
                    chunk.thread, chunk.graph_id = batch.thread, batch.graph_id
                self._pending.append(self._batch(run_id, chunk))

    def _batch(self, run_id: UUID, batch: _OpenBatch, *, ended: bool = False) -> PendingBatch:
        previous = self._last.get(run_id)
        last = self._last[run_id] = self._next_id(len(batch.events))
        packed = pack_batch(last, batch.events, previous)
        if batch.resumable and self._persist is not None:
            self._persist(run_id, last, _strip_result(last, batch.events, previous) or packed)
        return PendingBatch(
            run_id,
            last,
            previous,
            batch.events,
            packed,
            batch.resumable,
            ended,
            batch.thread,
            batch.graph_id,
            self._budget.add(run_id, last, len(packed)),
        )

    def _next_id(self, count: int) -> EventId:
        """The id of the last of `count` events, above every earlier id."""
        now = time.time_ns() // 1_000_000
        ms, n = self._clock
        if now > ms:
            ms, n = now, -1
        elif n + count >= IDS_PER_MILLISECOND:
            ms, n = ms + 1, -1
        self._clock = EventId(ms, n + count)
        return self._clock

    # Sending

    def _wake(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all(), name="stream-writer")

    async def _send_all(self) -> None:
        pause = 0.05
        while self._open or self._pending:
            for run_id in list(self._open):
                self._close_batch(run_id)
            batches, self._pending, self._size = list(self._pending), deque(), 0
            self._is_writable.set()
            waiters, self._sent_waiters = self._sent_waiters, []
            try:
                unsent = await self._send(batches)
            finally:
                _release(waiters)
            if not unsent:
                pause = 0.05
                continue
            self._pending.extendleft(reversed(unsent))
            self._size += sum(len(batch.packed) for batch in unsent)
            self._drop_oldest()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
        _release(self._sent_waiters)
        self._sent_waiters = []

    async def _send(self, batches: list[PendingBatch]) -> list[PendingBatch]:
        """Send the batches and return those that Redis did not accept, in order."""
        commands: list[Command] = []
        offsets: list[int] = []
        for batch in batches:
            offsets.append(len(commands))
            commands += batch.commands()
        try:
            if not self._link.is_up:
                await self._link.connect()
            replies = self._link.send(commands)
            await self._link.drained()
            _, unanswered = await asyncio.wait(replies, timeout=REPLY_TIMEOUT_SECONDS)
            if unanswered:
                self._link.close()
        except RedisLost:
            return batches
        unsent: list[PendingBatch] = []
        for batch, offset in zip(batches, offsets, strict=True):
            error = replies[offset].exception()
            if isinstance(error, hiredis.ReplyError) and "equal or smaller" in str(error):
                unsent += await self._renumber(batch)
            elif isinstance(error, hiredis.ReplyError) and not str(error).startswith(
                _TRANSIENT_ERRORS
            ):
                log.error("Redis rejected events: %s", error)  # e.g. its memory is full
            elif error is not None:
                unsent.append(batch)
        return unsent

    async def _renumber(self, batch: PendingBatch) -> list[PendingBatch]:
        """Handle a rejected id: drop a batch that Redis already has, else give it a newer id."""
        name, last = stream_key(batch.run_id), str(batch.last)
        try:
            [existing, newest] = await self._link.run(
                ("XRANGE", name, last, last), ("XREVRANGE", name, "+", "-", "COUNT", 1)
            )
        except (RedisLost, hiredis.ReplyError):
            return [batch]
        if existing:  # only its reply was lost; readers drop duplicates
            return []
        if newest:
            self._clock = max(self._clock, EventId.parse(newest[0][0].decode()))
            batch.last, batch.previous = self._next_id(len(batch.events)), None
            batch.packed = pack_batch(batch.last, batch.events)
            if batch.run_id in self._last:
                self._last[batch.run_id] = max(batch.last, self._last[batch.run_id])
        return [batch]

    def _drop_oldest(self) -> None:
        """Drop the oldest batches above the size limit. PostgreSQL still has the end of a run."""
        while self._size > self.MAX_OFFLINE_BYTES and self._pending:
            batch = self._pending.popleft()
            self._size -= len(batch.packed)
            log.warning("Dropped events of run %s while Redis was unavailable.", batch.run_id)


def _release(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _strip_result(
    last: EventId, events: list[StreamEvent], previous: EventId | None
) -> bytes | None:
    """The packed last batch without the result, which PostgreSQL has; None for other batches."""
    *others, end = events
    if end[0] != END.decode():
        return None
    stripped: list[Any] = [*others, (end[0], end[1], None, end[3] if len(end) > 3 else None)]
    return pack_batch(last, stripped, previous)
