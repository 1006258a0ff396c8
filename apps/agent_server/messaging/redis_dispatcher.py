"""Carries the messages of a web process, on one connection of its event loop.

Threads hand theirs over without waiting for Redis, and all that is handed over in one turn of the
loop leaves in one write. Answers to questions come back on a channel of the process' own.
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
"""Messages that wait for Redis to come back; for the others there is the sweeper."""


class RedisDispatcher:
    """The messages of one event loop."""

    def __init__(self, url: str | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = RedisConnection(
            url or settings.REDIS_URL, on_push=self._pushed, on_lost=self._lost_link
        )
        self.channel = f"slipway:answers:{uuid4().hex}"
        self._asked: dict[bytes, asyncio.Future[CallResponse]] = {}
        self._handing_over = threading.Lock()
        self._unsent: list[Command] = []
        self._is_called = False
        self._is_listening = False
        self._connecting: asyncio.Task[None] | None = None

    def send(self, *commands: Command) -> None:
        """Have the commands reach Redis soon; from any thread. Nobody is told whether they do."""
        with self._handing_over:
            self._unsent += commands
            if self._is_called:
                return
            self._is_called = True
        self._loop.call_soon_threadsafe(self._send)

    async def ask(self, asked: CallRequest, seconds: float) -> CallResponse:
        """The answer to a question. `RedisLost`, or `TimeoutError` when none comes in time."""
        await self._connect()
        answer = self._loop.create_future()
        self._asked[asked.id] = answer
        try:
            async with asyncio.timeout(seconds):
                for reply in self._link.send(asked.commands()):
                    reply.add_done_callback(_log_failed_reply)
                answered: CallResponse = await answer
                if answered.body is None:
                    [packed] = await self._link.run(("LPOP", asked.place))
                    answered = CallResponse.unpack(packed)
                return answered
        finally:
            self._asked.pop(asked.id, None)

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        self._link.close()

    # Inside

    def _send(self) -> None:
        if not self._link.is_up:
            self._connect_soon()
            return
        with self._handing_over:
            commands, self._unsent, self._is_called = self._unsent, [], False
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
                self._forget_some(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            else:
                self._send()
                return

    def _forget_some(self, error: RedisLost) -> None:
        with self._handing_over:
            excess = len(self._unsent) - MAX_UNSENT_COMMANDS
            if excess > 0:
                del self._unsent[:excess]
        if excess > 0:
            log.warning("%d messages wait for the sweeper: %s", excess, error)

    async def _connect(self) -> None:
        if not self._link.is_up:
            await self._link.connect()
        if not self._is_listening:
            self._link.send([("SUBSCRIBE", self.channel)])
            self._is_listening = True

    def _pushed(self, _: bytes, payload: bytes) -> None:
        answered = CallResponse.unpack(payload)
        waiting = self._asked.get(answered.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answered)

    def _lost_link(self) -> None:
        self._is_listening = False
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(RedisLost("Redis hung up"))


def _log_failed_reply(reply: asyncio.Future[object]) -> None:
    if not reply.cancelled() and (error := reply.exception()) is not None:
        log.warning("a message waits for the sweeper: %s", error)


_dispatchers: WeakKeyDictionary[asyncio.AbstractEventLoop, RedisDispatcher] = WeakKeyDictionary()
_process_dispatcher: RedisDispatcher | None = None


def loop_dispatcher() -> RedisDispatcher:
    """Return the dispatcher of the running loop."""
    loop = asyncio.get_running_loop()
    found = _dispatchers.get(loop)
    if found is None:
        found = _dispatchers[loop] = RedisDispatcher()
    return found


def set_process_dispatcher() -> None:
    """Let this process's threads use the running loop's dispatcher while the loop runs."""
    global _process_dispatcher  # noqa: PLW0603
    _process_dispatcher = loop_dispatcher()


def process_dispatcher() -> RedisDispatcher | None:
    """Return the dispatcher for threads of this process; None when no loop serves requests."""
    return _process_dispatcher
