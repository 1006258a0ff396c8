"""A reader of one run's stream, which yields each event once, in order and without gaps.

A batch names the event before it, so the reader detects missing batches: the connection was lost,
the reader was too slow for its mailbox, or Redis lost them. It then reads the events after its
cursor again, from Redis and, for a resumable run, from PostgreSQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

import hiredis
from django.db import Error as DatabaseError

from apps.agent_server.messaging.redis_connection import Command, RedisLost
from apps.agent_server.services import stream_history
from apps.agent_server.streaming.streams import (
    BEGINNING,
    END,
    Batch,
    Event,
    EventId,
    stream_key,
    unpack_batch,
)
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread

log = logging.getLogger(__name__)

BATCHES_PER_READ = 200
"""Maximum number of batches in one read from Redis."""
MAILBOX_BYTES = 1024 * 1024
"""Buffer for a slow client; on overflow, the events are read from the stream in Redis again."""
HISTORY_RETRY_SECONDS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Delays of reads from PostgreSQL, which is a tenth of a second behind Redis."""
RETRY_SECONDS = 0.2


class RedisHub(Protocol):
    """The methods of the hub that a subscription calls."""

    @property
    def is_up(self) -> bool: ...

    def request(self, command: Command) -> asyncio.Future[Any]: ...

    def leave(self, reader: Subscription) -> None: ...


class Subscription:
    """A reader of a run's stream. Use it as an async context manager and await `next`."""

    def __init__(
        self,
        hub: RedisHub,
        run_id: UUID,
        after: EventId | None,
        *,
        is_resumable: bool = False,
        is_new: bool = False,
        woken: asyncio.Event | None = None,
    ) -> None:
        self.run_id = run_id
        self.channel = stream_key(run_id).encode()
        self._hub = hub
        self._cursor = after
        self._is_resumable = is_resumable
        self._has_read_history = is_new or not is_resumable or after is None
        self._is_stale = True
        self._pending_read: asyncio.Future[Any] | None = None
        self._reads_history = False
        self._tries = 0
        self._pause_timer: asyncio.TimerHandle | None = None
        self._mailbox: deque[Batch] = deque()
        self._size = 0
        self._ended: str | None = None
        self._wake_requested = False
        self._woken = woken or asyncio.Event()

    async def next(self) -> list[Event]:
        """Wait for events and return them; an empty list after a `wake`.

        The event named `end` is the last. If it was lost, it is created from the run's status.
        """
        while True:
            self._woken.clear()
            if self._wake_requested:
                self._wake_requested = False
                return []
            if events := self.step():
                return events
            if self.is_waiting:
                await self._woken.wait()

    def wake(self) -> None:
        """Make `next` return, even without events."""
        self._wake_requested = True
        self._woken.set()

    @property
    def is_waiting(self) -> bool:
        """Whether `step` has nothing to do until `woken` is set."""
        if self._pending_read is not None:
            return not self._pending_read.done()
        if self._pause_timer is not None:
            return True
        if self._is_stale and (self._reads_history or self._hub.is_up):
            return False
        return self._ended is None and (self._is_stale or not self._mailbox)

    @property
    def is_idle(self) -> bool:
        """Whether all available events were returned."""
        is_reading = (
            self._pending_read is not None or self._pause_timer is not None or self._is_stale
        )
        return not is_reading and not self._mailbox and self._ended is None

    def step(self) -> list[Event]:
        """Return the available events without waiting, for a caller that shares `woken`."""
        if self._pending_read is not None:
            if not self._pending_read.done():
                return []
            reply, self._pending_read = self._pending_read, None
            self._store_reply(reply)
            if events := self._take_events():
                return events
        if self._pause_timer is not None:
            return []
        if self._is_stale and (self._reads_history or self._hub.is_up):
            self._start_read()
            return []
        if not self._is_stale and (events := self._take_events()):
            return events
        if self._ended is None or self._pending_read is not None or self._pause_timer is not None:
            return []
        if self._mailbox and not self._is_stale:
            return []
        if not self._has_read_history:
            self._schedule_history_read()
            return []
        return [Event(BEGINNING, END, dumps({"status": self._ended}))]

    def close(self) -> None:
        """Stop reading."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._hub.leave(self)

    # Called by the hub

    def read_command(self) -> Command:
        """The Redis command that reads the events after the cursor."""
        if self._cursor is None:
            return ("XREVRANGE", self.channel, "+", "-", "COUNT", 1)
        return ("XRANGE", self.channel, f"({self._cursor}", "+", "COUNT", BATCHES_PER_READ)

    def set_pending_read(self, reply: asyncio.Future[Any]) -> None:
        """Wait for the reply to `read_command`."""
        self._reads_history = False
        self._is_stale = False
        self._pending_read = reply
        reply.add_done_callback(self._wake)

    def deliver(self, batch: Batch) -> None:
        if self._size > MAILBOX_BYTES:
            self._mailbox.clear()
            self._size = 0
            self._is_stale = True
        else:
            self._mailbox.append(batch)
            self._size += batch.size
        self._woken.set()

    def mark_stale(self) -> None:
        """The connection was lost: read the missed events from Redis."""
        self._is_stale = True
        self._woken.set()

    def finish(self, status: str) -> None:
        """The run ended with this status, even if Redis has no `end` event."""
        self._ended = status
        self._has_read_history = not self._is_resumable
        self._woken.set()

    # Internal

    def _wake(self, _: object = None) -> None:
        self._woken.set()

    def _start_read(self) -> None:
        if self._reads_history:
            self._is_stale = False
            reading = in_thread(stream_history.read_after, self.run_id, self._cursor or BEGINNING)
            self._pending_read = asyncio.ensure_future(reading)
            self._pending_read.add_done_callback(self._wake)
        else:
            self.set_pending_read(self._hub.request(self.read_command()))

    def _store_reply(self, reply: asyncio.Future[Any]) -> None:
        """Put the batches of a read before those that arrived since."""
        try:
            result = reply.result()
        except RedisLost:
            self._is_stale = True
            return
        except (hiredis.ReplyError, DatabaseError) as error:  # the server is starting
            log.warning("Reading a stream failed, it will be retried: %s", error)
            self._is_stale = True
            self._pause(RETRY_SECONDS)
            return
        if self._reads_history:
            batches: list[Batch] = result
            self._reads_history = False
            if batches:  # one page; there may be more
                self._mailbox.extendleft(reversed(batches))
                self._size += sum(batch.size for batch in batches)
                self._schedule_history_read()
                return
        else:
            batches = [unpack_batch(fields[1]) for _, fields in result]
            if self._cursor is None:
                self._start_at_end(batches)
                return
            self._is_stale = self._is_stale or len(batches) == BATCHES_PER_READ
            if not batches and not self._mailbox and not self._has_read_history:
                self._schedule_history_read()
        if self._is_stale:  # batches are missing between these and the mailbox
            self._mailbox.clear()
            self._size = 0
        self._mailbox.extendleft(reversed(batches))
        self._size += sum(batch.size for batch in batches)

    def _start_at_end(self, newest: list[Batch]) -> None:
        """Set the cursor to the newest event; return only `end` if the run has ended."""
        if not newest:
            return
        last = newest[0].events[-1]
        if last.name == END:
            self._mailbox.appendleft(Batch([last], None, 0))
        else:
            self._cursor = last.id

    def _take_events(self) -> list[Event]:
        mailbox = self._mailbox
        if len(mailbox) == 1 and mailbox[0].previous == self._cursor is not None:
            batch = mailbox.popleft()  # the usual case
            self._size, self._tries = 0, 0
            self._cursor = batch.last
            return batch.events
        events: list[Event] = []
        while self._mailbox:
            batch, cursor = self._mailbox[0], self._cursor
            is_ahead = cursor is not None and batch.last > cursor
            if (
                is_ahead
                and not self._is_contiguous(batch)
                and (events or not self._confirm_loss(batch))
            ):
                break
            self._mailbox.popleft()
            self._size -= batch.size
            if cursor is None or batch.events[0].id > cursor:
                events += batch.events
            elif batch.last > cursor:
                events += [event for event in batch.events if event.id > cursor]
            else:
                continue
            self._cursor = batch.last
            self._tries = 0
        return events

    def _is_contiguous(self, batch: Batch) -> bool:
        """Whether no event is known to be missing between the cursor and the batch."""
        cursor = self._cursor or BEGINNING
        if batch.previous is None:
            return not self._is_resumable or batch.events[0].id <= cursor
        return batch.previous <= cursor or batch.events[0].id <= cursor

    def _confirm_loss(self, batch: Batch) -> bool:
        """Return whether the events before the batch are lost; while unknown, read them again."""
        tries, self._tries = self._tries, self._tries + 1
        if tries == 0:
            self._is_stale, self._reads_history = True, False
            return False
        # An unknown previous event is of an earlier attempt: its events are stored or lost by now.
        pauses = HISTORY_RETRY_SECONDS if batch.previous is not None else HISTORY_RETRY_SECONDS[:1]
        if not self._is_resumable or tries > len(pauses):
            return True
        self._schedule_history_read(pauses[tries - 1])
        return False

    def _schedule_history_read(self, pause: float = 0.0) -> None:
        self._has_read_history = True
        self._is_stale = self._reads_history = True
        if pause:
            self._pause(pause)

    def _pause(self, seconds: float) -> None:
        self._pause_timer = asyncio.get_running_loop().call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause_timer = None
        self._woken.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
