"""All open streams of a web process on one Redis connection.

A reader of a run subscribes to the run's channel and reads the run's stream from its cursor. A
reader of a thread receives notices of new runs. After a lost connection every reader reads the
events since its cursor again, so memory is bounded and no available event is skipped. A periodic
query of the runs that readers follow finds those whose `end` event Redis lost.
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
"""Interval of connection checks, and of PostgreSQL queries while Redis is unavailable."""
POLLS_BETWEEN_HEALTHY_LOOKUPS = 5
"""Number of polls between two PostgreSQL queries while Redis is available."""


class Listener(Protocol):
    """A subscriber of a channel other than a run's."""

    channel: bytes

    def on_message(self, payload: bytes) -> None: ...

    def mark_stale(self) -> None:
        """The connection was made or lost, so messages may be missing."""


class StreamHub:
    """The readers and listeners of one event loop."""

    def __init__(self, url: str | None = None) -> None:
        self._link = RedisConnection(
            url or settings.REDIS_URL, on_push=self._deliver, on_lost=self._reconnect_soon
        )
        self._readers: dict[bytes, list[Subscription]] = {}
        self._listeners: dict[bytes, list[Listener]] = {}
        self._reconnecting: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
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
        """Read the run's stream after the event `after`; None starts at the current end.

        `is_resumable`: PostgreSQL has the events that Redis lost. `is_new`: the stream is empty.
        `woken` is set when the reader should call `step`. Use the result as an async context
        manager.
        """
        reader = Subscription(
            self, run_id, after, is_resumable=is_resumable, is_new=is_new, woken=woken
        )
        readers = self._readers.setdefault(reader.channel, [])
        readers.append(reader)
        if self._link.is_up:
            commands: list[Command] = [reader.read_command()]
            if len(readers) == 1:
                commands.insert(0, ("SUBSCRIBE", reader.channel))
            reader.set_pending_read(self._link.send(commands)[0])
        else:
            self._reconnect_soon()
        self._start_polling()
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
        """Subscribe a listener, which is marked stale whenever it may have missed messages.

        It is marked stale once after subscribing, so its first read is newer than the subscription.
        """
        listeners = self._listeners.setdefault(listener.channel, [])
        listeners.append(listener)
        if self._link.is_up:
            commands: list[Command] = [("PING",)]
            if len(listeners) == 1:
                commands.insert(0, ("SUBSCRIBE", listener.channel))
            [subscribed] = self._link.send(commands)
            subscribed.add_done_callback(_consume_reply)
            subscribed.add_done_callback(lambda _: listener.mark_stale())
        else:
            self._reconnect_soon()
        self._start_polling()

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

    async def run(self, *commands: Command) -> list[Any]:
        """Connect if necessary, send the commands and return the replies.

        Raises `RedisLost` or `hiredis.ReplyError`.
        """
        return await self._link.run(*commands)

    async def aclose(self) -> None:
        for task in (self._reconnecting, self._polling):
            if task is not None:
                task.cancel()
        self._readers.clear()
        self._listeners.clear()
        self._link.close()

    # Internal

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
                    [subscribed] = self._link.send([("SUBSCRIBE", *channels), ("PING",)])
                    await subscribed
                break
            except (RedisLost, hiredis.ReplyError):  # Redis is still loading its data
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
        for reader in self._all_readers():
            reader.mark_stale()
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.mark_stale()

    def _start_polling(self) -> None:
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="stream-poll")

    async def _poll(self) -> None:
        polls = 0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            polls += 1
            self._check_connection()
            is_healthy = self._link.is_up and not self._seen_ended
            if not self._readers or (is_healthy and polls % POLLS_BETWEEN_HEALTHY_LOOKUPS):
                continue
            try:
                await self._finish_ended()
            except DatabaseError as error:
                log.warning("Querying open runs failed: %s", error)

    def _check_connection(self) -> None:
        """Close a connection whose last ping has no reply; nothing else detects it."""
        if self._ping is not None and not self._ping.done():
            self._link.close()
        is_needed = bool(self._readers or self._listeners)
        self._ping = self.request(("PING",)) if is_needed and self._link.is_up else None
        if self._ping is not None:
            self._ping.add_done_callback(_consume_reply)

    async def _finish_ended(self) -> None:
        """Finish the readers of runs that had ended in two successive polls.

        The `end` event follows the commit in PostgreSQL within less than one interval.
        """
        ended_run_ids = await in_thread(
            runs.find_ended, list({reader.run_id for reader in self._all_readers()})
        )
        for reader in self._all_readers():
            if reader.run_id in ended_run_ids and reader.run_id in self._seen_ended:
                reader.finish(ended_run_ids[reader.run_id])
        self._seen_ended = set(ended_run_ids)

    def _all_readers(self) -> list[Subscription]:
        return [reader for readers in self._readers.values() for reader in readers]


def _consume_reply(reply: asyncio.Future[Any]) -> None:
    """Read the reply's exception, so that asyncio does not log it."""
    if not reply.cancelled():
        reply.exception()


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, StreamHub] = WeakKeyDictionary()


def get_hub() -> StreamHub:
    """The hub of the running loop."""
    loop = asyncio.get_running_loop()
    loop_hub = _hubs.get(loop)
    if loop_hub is None:
        loop_hub = _hubs[loop] = StreamHub()
    return loop_hub
