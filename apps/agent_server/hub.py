"""All open streams of a web process on one Redis connection.

A reader subscribes to the run's channel and reads the run's stream from where it stands; what
came by both ways is told apart by its id. The same reading makes good a lost connection and a
reader too slow for its mailbox, so memory is bounded and nothing is skipped that Redis still has.
A run whose end Redis lost is seen in PostgreSQL by a slow look at all open runs at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self
from uuid import UUID
from weakref import WeakKeyDictionary

import hiredis
from django.conf import settings
from django.db import Error as DatabaseError

from apps.agent_server.redis_link import Command, RedisLink, RedisLost
from apps.agent_server.services import runs
from apps.agent_server.streams import BEGINNING, END, Event, EventId, key, unpack
from apps.core.crossing import in_thread
from apps.core.json import dumps

log = logging.getLogger(__name__)

PAGE = 200
"""Batches read back at a time."""
MAILBOX_BYTES = 1024 * 1024
"""What may wait for a slow client; beyond it, the client is served from the stream in Redis."""
LOOK_SECONDS = 2.0
LOOKS_WHILE_WELL = 5
"""Every so many looks PostgreSQL is asked although Redis answers."""


class Subscription:
    """One reader of one run's stream; `next` gives what has come."""

    def __init__(self, hub: StreamHub, run_id: UUID, after: EventId | None) -> None:
        self.run_id = run_id
        self.channel = key(run_id).encode()
        self._hub = hub
        self._cursor = after
        self._opening: asyncio.Future[Any] | None = None
        self._behind = True
        self._mailbox: deque[Event] = deque()
        self._size = 0
        self._ended: str | None = None
        self._nudged = False
        self._woken = asyncio.Event()

    async def next(self) -> list[Event]:
        """The events that have come since the last call; an empty list after a `nudge`.

        The event named `end` is the last. It is made up here when Redis lost it.
        """
        while True:
            self._woken.clear()
            if self._nudged:
                self._nudged = False
                return []
            events = await self._read_back() if self._behind else self._take()
            if events:
                return events
            if self._hub.is_up if self._behind else self._mailbox:
                continue
            if self._ended is not None and not self._mailbox:
                return [Event(BEGINNING, END, dumps({"status": self._ended}))]
            await self._woken.wait()

    def nudge(self) -> None:
        """Have `next` return, also when nothing has come."""
        self._nudged = True
        self._woken.set()

    # The hub's side

    def opening(self) -> Command:
        """What to ask the stream when the reader has just subscribed."""
        if self._cursor is None:
            return ("XREVRANGE", self.channel, "+", "-", "COUNT", 1)
        return ("XRANGE", self.channel, f"({self._cursor}", "+", "COUNT", PAGE)

    def opened(self, answer: asyncio.Future[Any] | None) -> None:
        self._opening = answer

    def deliver(self, events: list[Event]) -> None:
        if self._size > MAILBOX_BYTES:
            self._mailbox.clear()
            self._size = 0
            self._behind = True
            if self._cursor is not None:
                self._opening = None  # its answer is older than what was just dropped
        else:
            self._mailbox.extend(events)
            self._size += sum(len(event.data) for event in events)
        self._woken.set()

    def fall_behind(self) -> None:
        """The connection was lost: what is in between must be read back."""
        self._behind = True
        self._woken.set()

    def finish(self, status: str) -> None:
        """The run ended that way, whatever Redis says."""
        self._ended = status
        self._woken.set()

    # Inside

    def _take(self) -> list[Event]:
        cursor = self._cursor or BEGINNING
        events = [event for event in self._mailbox if event.id > cursor]
        self._mailbox.clear()
        self._size = 0
        if events:
            self._cursor = events[-1].id
        return events

    async def _read_back(self) -> list[Event]:
        """One page of the stream from where this reader stands."""
        cursor = self._cursor
        # Before the answer, so that a mailbox which overflows meanwhile is not forgotten.
        self._behind = False
        try:
            answer, self._opening = self._opening, None
            entries = await (answer or self._ask())
        except RedisLost:
            self._behind = True
            return []
        except hiredis.ReplyError as error:
            log.warning("a stream cannot be read back: %s", error)
            return []
        if cursor is None:  # from now on, which may be after the end
            newest = unpack(entries[0][1][1]) if entries else []
            self._cursor = newest[-1].id if newest else BEGINNING
            return [event for event in newest if event.name == END]
        events = _events(entries, cursor)
        if len(entries) == PAGE:
            self._behind = True
        if events:
            self._cursor = events[-1].id
        return events

    async def _ask(self) -> Any:
        [answer] = await self._hub.ask(self.opening())
        return answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hub.leave(self)


def _events(entries: list[Any], after: EventId) -> list[Event]:
    """The events of stream entries; the first entry may begin with some that were seen before."""
    return [event for _, fields in entries for event in unpack(fields[1]) if event.id > after]


class StreamHub:
    """The readers of one event loop."""

    def __init__(self, url: str | None = None) -> None:
        self._link = RedisLink(
            url or settings.REDIS_URL, on_push=self._deliver, on_lost=self._reconnect_soon
        )
        self._readers: dict[bytes, list[Subscription]] = {}
        self._reconnecting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._seen_ended: set[UUID] = set()

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    @property
    def open_streams(self) -> int:
        return sum(len(readers) for readers in self._readers.values())

    def open(self, run_id: UUID, after: EventId | None) -> Subscription:
        """Read the run's stream after that event; None means from now on.

        To be used as an async context manager.
        """
        reader = Subscription(self, run_id, after)
        readers = self._readers.setdefault(reader.channel, [])
        readers.append(reader)
        if self._link.is_up:
            commands: list[Command] = [reader.opening()]
            if len(readers) == 1:
                commands.insert(0, ("SUBSCRIBE", reader.channel))
            reader.opened(self._link.send(commands)[0])
        else:
            self._reconnect_soon()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_at_postgres(), name="stream-look")
        return reader

    def leave(self, reader: Subscription) -> None:
        readers = self._readers.get(reader.channel, [])
        if reader in readers:
            readers.remove(reader)
        if not readers and self._readers.pop(reader.channel, None) is not None:
            self._seen_ended.discard(reader.run_id)
            if self._link.is_up:
                self._link.send([("UNSUBSCRIBE", reader.channel)])

    async def stored(self, run_id: UUID, after: EventId) -> AsyncIterator[list[Event]]:
        """What is kept of the stream after that event, by pages; nothing while Redis is away."""
        entries: list[Any] = [None] * PAGE
        with contextlib.suppress(RedisLost):
            while len(entries) == PAGE:
                command = ("XRANGE", key(run_id), f"({after}", "+", "COUNT", PAGE)
                [entries] = await self._link.run(command)
                events = _events(entries, after)
                if events:
                    after = events[-1].id
                    yield events

    async def ask(self, command: Command) -> list[Any]:
        if not self._link.is_up:
            raise RedisLost
        return await asyncio.gather(*self._link.send([command]))

    async def aclose(self) -> None:
        for task in (self._reconnecting, self._looking):
            if task is not None:
                task.cancel()
        self._readers.clear()
        self._link.close()

    # Inside

    def _deliver(self, channel: bytes, payload: bytes) -> None:
        readers = self._readers.get(channel)
        if readers:
            events = unpack(payload)
            for reader in readers:
                reader.deliver(events)

    def _reconnect_soon(self) -> None:
        if self._readers and (self._reconnecting is None or self._reconnecting.done()):
            self._reconnecting = asyncio.create_task(self._reconnect(), name="stream-reconnect")

    async def _reconnect(self) -> None:
        pause = 0.05
        while self._readers:
            try:
                await self._link.connect()
                if self._readers:
                    self._link.send([("SUBSCRIBE", *self._readers)])
                break
            except RedisLost:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
        for reader in self._all():
            reader.fall_behind()

    async def _look_at_postgres(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            turn += 1
            well = self._link.is_up and not self._seen_ended
            if not self._readers or (well and turn % LOOKS_WHILE_WELL):
                continue
            try:
                await self._look()
            except DatabaseError as error:
                log.warning("open runs could not be looked at: %s", error)

    async def _look(self) -> None:
        """Finish the readers of runs that were seen to have ended twice in a row.

        Between a run's end in PostgreSQL and its `end` in Redis lies a moment, never a whole turn.
        """
        ended = await in_thread(runs.ended_among, list({reader.run_id for reader in self._all()}))
        for reader in self._all():
            if reader.run_id in ended and reader.run_id in self._seen_ended:
                reader.finish(ended[reader.run_id])
        self._seen_ended = set(ended)

    def _all(self) -> list[Subscription]:
        return [reader for readers in self._readers.values() for reader in readers]


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, StreamHub] = WeakKeyDictionary()


def hub() -> StreamHub:
    """The hub of the running loop."""
    loop = asyncio.get_running_loop()
    found = _hubs.get(loop)
    if found is None:
        found = _hubs[loop] = StreamHub()
    return found
