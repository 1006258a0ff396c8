"""All open streams of a web process on one Redis connection.

Readers of runs subscribe to the run's channel and read the run's stream from where they stand;
readers of threads are told which runs begin. After a loss of the connection everybody reads back,
so memory is bounded and nothing is skipped that is still to be had. A run whose end Redis lost is
seen in PostgreSQL by a slow look at all open runs at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol
from uuid import UUID
from weakref import WeakKeyDictionary

import hiredis
from django.conf import settings
from django.db import Error as DatabaseError

from apps.agent_server.messaging.redis_connection import Command, RedisConnection, RedisLost
from apps.agent_server.services import runs
from apps.agent_server.streaming.streams import EventId, unpack_batch
from apps.agent_server.streaming.subscription import Subscription
from apps.core.sync_bridge import in_thread

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""How often the connection is tried, and PostgreSQL asked while Redis is away."""
POLLS_BETWEEN_HEALTHY_LOOKUPS = 5
"""Every so many looks PostgreSQL is asked although Redis answers."""


class Listener(Protocol):
    """Somebody who hears a channel that is not a run's."""

    channel: bytes

    def on_message(self, payload: bytes) -> None: ...

    def mark_stale(self) -> None:
        """The connection was lost, or has only now been made."""


class StreamHub:
    """The readers of one event loop."""

    def __init__(self, url: str | None = None) -> None:
        self._link = RedisConnection(
            url or settings.REDIS_URL, on_push=self._deliver, on_lost=self._reconnect_soon
        )
        self._readers: dict[bytes, list[Subscription]] = {}
        self._listeners: dict[bytes, list[Listener]] = {}
        self._reconnecting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._ping: asyncio.Future[Any] | None = None
        self._seen_ended: set[UUID] = set()

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    @property
    def open_streams(self) -> int:
        return sum(len(readers) for readers in self._readers.values())

    def open(
        self,
        run_id: UUID,
        after: EventId | None,
        *,
        is_resumable: bool = False,
        is_new: bool = False,
        woken: asyncio.Event | None = None,
    ) -> Subscription:
        """Read the run's stream after that event; None means from now on.

        `is_resumable`: events that Redis lost are in PostgreSQL. `is_new`: the stream is empty yet.
        `woken` is set when the reader should call `step`. Use it as an async context manager.
        """
        reader = Subscription(
            self, run_id, after, is_resumable=is_resumable, is_new=is_new, woken=woken
        )
        readers = self._readers.setdefault(reader.channel, [])
        readers.append(reader)
        if self._link.is_up:
            commands: list[Command] = [reader.opening()]
            if len(readers) == 1:
                commands.insert(0, ("SUBSCRIBE", reader.channel))
            reader.asked(self._link.send(commands)[0])
        else:
            self._reconnect_soon()
        self._look_now_and_then()
        return reader

    def leave(self, reader: Subscription) -> None:
        readers = self._readers.get(reader.channel, [])
        if reader in readers:
            readers.remove(reader)
        if not readers and self._readers.pop(reader.channel, None) is not None:
            self._seen_ended.discard(reader.run_id)
            if self._link.is_up:
                self._link.send([("UNSUBSCRIBE", reader.channel)])

    def listen(self, listener: Listener) -> None:
        """Hear a channel; the listener `falls behind` whenever it may have missed something.

        That happens once at the beginning: what it then looks up is not older than what it hears.
        """
        listeners = self._listeners.setdefault(listener.channel, [])
        listeners.append(listener)
        if self._link.is_up:
            commands: list[Command] = [("PING",)]
            if len(listeners) == 1:
                commands.insert(0, ("SUBSCRIBE", listener.channel))
            [heard] = self._link.send(commands)
            heard.add_done_callback(_consume_reply)
            heard.add_done_callback(lambda _: listener.mark_stale())
        else:
            self._reconnect_soon()
        self._look_now_and_then()

    def remove_listener(self, listener: Listener) -> None:
        listeners = self._listeners.get(listener.channel, [])
        if listener in listeners:
            listeners.remove(listener)
        is_last = not listeners and self._listeners.pop(listener.channel, None) is not None
        if is_last and self._link.is_up:
            self._link.send([("UNSUBSCRIBE", listener.channel)])

    def request(self, command: Command) -> asyncio.Future[Any]:
        """Send the command now; raises `RedisLost` while there is no connection."""
        return self._link.send([command])[0]

    async def ask(self, command: Command) -> list[Any]:
        return [await self.request(command)]

    async def aclose(self) -> None:
        for task in (self._reconnecting, self._looking):
            if task is not None:
                task.cancel()
        self._readers.clear()
        self._listeners.clear()
        self._link.close()

    # Inside

    def _deliver(self, channel: bytes, payload: bytes) -> None:
        if readers := self._readers.get(channel):
            batch = unpack_batch(payload)
            for reader in readers:
                reader.deliver(batch)
        elif listeners := self._listeners.get(channel):
            for listener in listeners:
                listener.on_message(payload)

    def _reconnect_soon(self) -> None:
        is_needed = bool(self._readers or self._listeners)
        if is_needed and (self._reconnecting is None or self._reconnecting.done()):
            self._reconnecting = asyncio.create_task(self._reconnect(), name="stream-reconnect")

    async def _reconnect(self) -> None:
        pause = 0.05
        while self._readers or self._listeners:
            try:
                await self._link.connect()
                if channels := [*self._readers, *self._listeners]:
                    [heard] = self._link.send([("SUBSCRIBE", *channels), ("PING",)])
                    await heard
                break
            except (RedisLost, hiredis.ReplyError):  # a refusal: it is still loading its data
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
        for reader in self._all():
            reader.mark_stale()
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.mark_stale()

    def _look_now_and_then(self) -> None:
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_at_postgres(), name="stream-look")

    async def _look_at_postgres(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            turn += 1
            self._try_link()
            well = self._link.is_up and not self._seen_ended
            if not self._readers or (well and turn % POLLS_BETWEEN_HEALTHY_LOOKUPS):
                continue
            try:
                await self._look()
            except DatabaseError as error:
                log.warning("open runs could not be looked at: %s", error)

    def _try_link(self) -> None:
        """Cut a connection on which nothing is answered: nobody else would notice."""
        if self._ping is not None and not self._ping.done():
            self._link.close()
        is_needed = bool(self._readers or self._listeners)
        self._ping = self.request(("PING",)) if is_needed and self._link.is_up else None
        if self._ping is not None:
            self._ping.add_done_callback(_consume_reply)

    async def _look(self) -> None:
        """Finish the readers of runs that were seen to have ended twice in a row.

        Between a run's end in PostgreSQL and its `end` in Redis lies a moment, never a whole turn.
        """
        ended = await in_thread(runs.find_ended, list({reader.run_id for reader in self._all()}))
        for reader in self._all():
            if reader.run_id in ended and reader.run_id in self._seen_ended:
                reader.finish(ended[reader.run_id])
        self._seen_ended = set(ended)

    def _all(self) -> list[Subscription]:
        return [reader for readers in self._readers.values() for reader in readers]


def _consume_reply(answer: asyncio.Future[Any]) -> None:
    """Nobody waits for it, and what went wrong shows elsewhere."""
    if not answer.cancelled():
        answer.exception()


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, StreamHub] = WeakKeyDictionary()


def hub() -> StreamHub:
    """The hub of the running loop."""
    loop = asyncio.get_running_loop()
    found = _hubs.get(loop)
    if found is None:
        found = _hubs[loop] = StreamHub()
    return found
