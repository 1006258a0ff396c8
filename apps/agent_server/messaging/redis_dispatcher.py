"""Sends the messages of a web process, on one connection of its event loop.

Threads queue messages without waiting for Redis, and all messages of one loop iteration are sent in
one write. Responses to graph calls arrive on a channel of this process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from uuid import uuid4
from weakref import WeakKeyDictionary

from django.conf import settings

from apps.agent_server.messaging.messages import CallRequest, CallResponse
from apps.agent_server.messaging.redis_connection import Command, RedisConnection, RedisLost

log = logging.getLogger(__name__)

MAX_UNSENT_COMMANDS = 10_000
"""Messages that are queued while Redis is unavailable; the sweeper replaces older ones."""


class RedisDispatcher:
    """The messages of one event loop."""

    def __init__(self, url: str | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = RedisConnection(
            url or settings.REDIS_URL, on_push=self._on_push, on_lost=self._on_lost
        )
        self.channel = f"slipway:answers:{uuid4().hex}"
        self._pending: dict[bytes, asyncio.Future[CallResponse]] = {}
        self._queue_lock = threading.Lock()
        self._unsent: list[Command] = []
        self._is_send_scheduled = False
        self._is_listening = False
        self._connecting: asyncio.Task[None] | None = None

    def send(self, *commands: Command) -> None:
        """Queue commands from any thread. There is no notification whether Redis received them."""
        with self._queue_lock:
            self._unsent += commands
            if self._is_send_scheduled:
                return
            self._is_send_scheduled = True
        self._loop.call_soon_threadsafe(self._send)

    async def call(self, request: CallRequest, seconds: float) -> CallResponse:
        """Send a graph call and wait for its response. Raises `RedisLost` or `TimeoutError`."""
        await self._connect()
        answer = self._loop.create_future()
        self._pending[request.id] = answer
        try:
            async with asyncio.timeout(seconds):
                for reply in self._link.send(request.commands()):
                    reply.add_done_callback(_log_failed_reply)
                response: CallResponse = await answer
                if response.body is None:
                    [packed] = await self._link.run(("LPOP", request.response_key))
                    if packed is None:
                        raise TimeoutError("The response expired before it was read.")
                    response = CallResponse.unpack(packed)
                return response
        finally:
            self._pending.pop(request.id, None)

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._link.close()

    # Internal

    def _send(self) -> None:
        if not self._link.is_up:
            self._connect_soon()
            return
        with self._queue_lock:
            commands, self._unsent, self._is_send_scheduled = self._unsent, [], False
        for reply in self._link.send(commands):
            reply.add_done_callback(_log_failed_reply)

    def _connect_soon(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(
                self._connect_and_send(), name="redis-dispatcher"
            )

    async def _connect_and_send(self) -> None:
        pause = 0.05
        while True:
            try:
                await self._connect()
            except RedisLost as error:
                self._drop_oldest(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            else:
                self._send()
                return

    def _drop_oldest(self, error: RedisLost) -> None:
        with self._queue_lock:
            excess = len(self._unsent) - MAX_UNSENT_COMMANDS
            if excess > 0:
                del self._unsent[:excess]
        if excess > 0:
            log.warning("Dropped %d messages, which the sweeper will replace: %s", excess, error)

    async def _connect(self) -> None:
        if not self._link.is_up:
            await self._link.connect()
        if not self._is_listening:
            self._link.send([("SUBSCRIBE", self.channel)])
            self._is_listening = True

    def _on_push(self, _: bytes, payload: bytes) -> None:
        response = CallResponse.unpack(payload)
        pending_call = self._pending.get(response.id)
        if pending_call is not None and not pending_call.done():
            pending_call.set_result(response)

    def _on_lost(self) -> None:
        self._is_listening = False
        for pending_call in self._pending.values():
            if not pending_call.done():
                pending_call.set_exception(RedisLost("Redis closed the connection"))


def _log_failed_reply(reply: asyncio.Future[object]) -> None:
    if not reply.cancelled() and (error := reply.exception()) is not None:
        log.warning("Redis rejected a message, which the sweeper will replace: %s", error)


_dispatchers: WeakKeyDictionary[asyncio.AbstractEventLoop, RedisDispatcher] = WeakKeyDictionary()
_process_dispatcher: RedisDispatcher | None = None


def loop_dispatcher() -> RedisDispatcher:
    """Return the dispatcher of the running loop."""
    loop = asyncio.get_running_loop()
    dispatcher = _dispatchers.get(loop)
    if dispatcher is None:
        dispatcher = _dispatchers[loop] = RedisDispatcher()
    return dispatcher


def set_process_dispatcher() -> None:
    """Let this process's threads use the running loop's dispatcher while the loop runs."""
    global _process_dispatcher  # noqa: PLW0603
    _process_dispatcher = loop_dispatcher()


def process_dispatcher() -> RedisDispatcher | None:
    """Return the dispatcher for threads of this process; None when no loop serves requests."""
    return _process_dispatcher
