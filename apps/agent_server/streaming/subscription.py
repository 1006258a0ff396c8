"""One reader of one run's stream: what came, in order, without a gap and without repeating.

Batches name the event before them, so a reader sees at once when some are missing: because the
connection was lost, because it was too slow for its mailbox, or because Redis forgot them. It then
reads back from where it stands, first from Redis, and what a resumable run said from PostgreSQL.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Self
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

if TYPE_CHECKING:
    from types import TracebackType

    from apps.agent_server.streaming.hub import StreamHub

log = logging.getLogger(__name__)

BATCHES_PER_READ = 200
"""Batches read back at a time."""
MAILBOX_BYTES = 1024 * 1024
"""What may wait for a slow client; beyond it, the client is served from the stream in Redis."""
HISTORY_RETRY_SECONDS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
"""How PostgreSQL is asked again for what is missing: it is a tenth of a second behind Redis."""
RETRY_SECONDS = 0.2


class Subscription:
    """`next` gives what has come. To be used as an async context manager."""

    def __init__(
        self,
        hub: StreamHub,
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
        self._is_kept = is_resumable
        self._has_asked_kept = is_new or not is_resumable or after is None
        self._behind = True
        self._answer: asyncio.Future[Any] | None = None
        self._from_kept = False
        self._tries = 0
        self._rest: asyncio.TimerHandle | None = None
        self._mailbox: deque[Batch] = deque()
        self._size = 0
        self._ended: str | None = None
        self._wake_requested = False
        self._woken = woken or asyncio.Event()

    async def next(self) -> list[Event]:
        """The events that have come since the last call; an empty list after a `wake`.

        The event named `end` is the last. It is made up here when everybody else lost it.
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
        """Have `next` return, also when nothing has come."""
        self._wake_requested = True
        self._woken.set()

    @property
    def is_waiting(self) -> bool:
        """Whether there is nothing to do before something happens."""
        if self._answer is not None:
            return not self._answer.done()
        if self._rest is not None:
            return True
        if self._behind and (self._from_kept or self._hub.is_up):
            return False
        return self._ended is None and (self._behind or not self._mailbox)

    @property
    def is_idle(self) -> bool:
        """Whether everything that is there was given."""
        under_way = self._answer is not None or self._rest is not None or self._behind
        return not under_way and not self._mailbox and self._ended is None

    def step(self) -> list[Event]:
        """What can be given at once, for who waits for several things with one event."""
        if self._answer is not None:
            if not self._answer.done():
                return []
            answer, self._answer = self._answer, None
            self._store(answer)
            if events := self._take():
                return events
        if self._rest is not None:
            return []
        if self._behind and (self._from_kept or self._hub.is_up):
            self._read_back()
            return []
        if not self._behind and (events := self._take()):
            return events
        if self._ended is None or self._answer is not None or self._rest is not None:
            return []
        if self._mailbox and not self._behind:
            return []
        if not self._has_asked_kept:
            self._ask_kept()
            return []
        return [Event(BEGINNING, END, dumps({"status": self._ended}))]

    def close(self) -> None:
        """Read no more."""
        if self._rest is not None:
            self._rest.cancel()
        self._hub.leave(self)

    # The hub's side

    def opening(self) -> Command:
        """What to ask the stream in Redis for what this reader has not seen."""
        if self._cursor is None:
            return ("XREVRANGE", self.channel, "+", "-", "COUNT", 1)
        return ("XRANGE", self.channel, f"({self._cursor}", "+", "COUNT", BATCHES_PER_READ)

    def asked(self, answer: asyncio.Future[Any]) -> None:
        """`opening` is under way."""
        self._from_kept = False
        self._behind = False
        self._answer = answer
        answer.add_done_callback(self._wake)

    def deliver(self, batch: Batch) -> None:
        if self._size > MAILBOX_BYTES:
            self._mailbox.clear()
            self._size = 0
            self._behind = True
        else:
            self._mailbox.append(batch)
            self._size += batch.size
        self._woken.set()

    def mark_stale(self) -> None:
        """The connection was lost: what is in between must be read back."""
        self._behind = True
        self._woken.set()

    def finish(self, status: str) -> None:
        """The run ended that way, whatever Redis says."""
        self._ended = status
        self._has_asked_kept = not self._is_kept
        self._woken.set()

    # Inside

    def _wake(self, _: object = None) -> None:
        self._woken.set()

    def _read_back(self) -> None:
        if self._from_kept:
            self._behind = False
            reading = in_thread(stream_history.read_after, self.run_id, self._cursor or BEGINNING)
            self._answer = asyncio.ensure_future(reading)
            self._answer.add_done_callback(self._wake)
        else:
            self.asked(self._hub.request(self.opening()))

    def _store(self, answer: asyncio.Future[Any]) -> None:
        """Put what was read back before what came meanwhile."""
        try:
            found = answer.result()
        except RedisLost:
            self._behind = True
            return
        except (hiredis.ReplyError, DatabaseError) as error:  # it loads its data, or starts again
            log.warning("a stream cannot be read back yet: %s", error)
            self._behind = True
            self._rest_for(RETRY_SECONDS)
            return
        if self._from_kept:
            batches: list[Batch] = found
            self._from_kept = False
            if batches:  # a page of them: perhaps there are more
                self._mailbox.extendleft(reversed(batches))
                self._size += sum(batch.size for batch in batches)
                self._ask_kept()
                return
        else:
            batches = [unpack_batch(fields[1]) for _, fields in found]
            if self._cursor is None:
                self._begin_now(batches)
                return
            self._behind = self._behind or len(batches) == BATCHES_PER_READ
            if not batches and not self._mailbox and not self._has_asked_kept:
                self._ask_kept()
        if self._behind:  # there is more between these and what waits here
            self._mailbox.clear()
            self._size = 0
        self._mailbox.extendleft(reversed(batches))
        self._size += sum(batch.size for batch in batches)

    def _begin_now(self, newest: list[Batch]) -> None:
        """From now on, which may be after the end."""
        if not newest:
            return
        last = newest[0].events[-1]
        if last.name == END:
            self._mailbox.appendleft(Batch([last], None, 0))
        else:
            self._cursor = last.id

    def _take(self) -> list[Event]:
        mailbox = self._mailbox
        if len(mailbox) == 1 and mailbox[0].before == self._cursor is not None:
            batch = mailbox.popleft()  # as it nearly always is
            self._size, self._tries = 0, 0
            self._cursor = batch.last
            return batch.events
        given: list[Event] = []
        while self._mailbox:
            batch, cursor = self._mailbox[0], self._cursor
            is_ahead = cursor is not None and batch.last > cursor
            if is_ahead and not self._follows(batch) and (given or not self._is_lost(batch)):
                break
            self._mailbox.popleft()
            self._size -= batch.size
            if cursor is None or batch.events[0].id > cursor:
                given += batch.events
            elif batch.last > cursor:
                given += [event for event in batch.events if event.id > cursor]
            else:
                continue
            self._cursor = batch.last
            self._tries = 0
        return given

    def _follows(self, batch: Batch) -> bool:
        """Whether nothing is missing between the reader and the batch, as far as is known."""
        cursor = self._cursor or BEGINNING
        if batch.before is None:
            return not self._is_kept or batch.events[0].id <= cursor
        return batch.before <= cursor or batch.events[0].id <= cursor

    def _is_lost(self, batch: Batch) -> bool:
        """Whether what is missing before the batch is gone; else it is being looked for."""
        tries, self._tries = self._tries, self._tries + 1
        if tries == 0:
            self._behind, self._from_kept = True, False
            return False
        # What came before an unknown event is there at once or never: its attempt is over.
        pauses = HISTORY_RETRY_SECONDS if batch.before is not None else HISTORY_RETRY_SECONDS[:1]
        if not self._is_kept or tries > len(pauses):
            return True
        self._ask_kept(pauses[tries - 1])
        return False

    def _ask_kept(self, pause: float = 0.0) -> None:
        self._has_asked_kept = True
        self._behind = self._from_kept = True
        if pause:
            self._rest_for(pause)

    def _rest_for(self, seconds: float) -> None:
        self._rest = asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._rest = None
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
