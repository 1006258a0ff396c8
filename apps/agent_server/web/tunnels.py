"""Tunnels between a web process and a graph host's worker, for an agent's custom HTTP routes.

Each side has a Redis channel, and a tunnel is a pair of them with ordered messages. It lasts as
long as both connections to Redis. Redis returns the number of receivers of a message, so a lost
peer is detected with the next message, and a ping is sent every `PING_SECONDS`.

Flow control is end to end: a sender may have `WINDOW_BYTES` in transit and is credited with what
the receiver has processed, so a slow client slows the agent's code and buffers stay small.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgpack
from django.conf import settings

from apps.agent_server.messaging.redis_connection import RedisConnection, RedisLost

log = logging.getLogger(__name__)

WINDOW_BYTES = 256 * 1024
"""Bytes that a sender may have in transit."""
MAX_MESSAGE_BYTES = 64 * 1024
"""The maximum payload of one message."""
PING_SECONDS = 5.0


class Tunnel:
    """One end of a tunnel.

    `on_message(kind, value)` is called for each message; an exception from it means a malformed
    message and closes the tunnel. `on_lost()` is called when the peer is gone.
    """

    def __init__(
        self,
        manager: TunnelManager,
        id_: bytes,
        peer: str,
        on_message: Callable[[str, Any], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._manager = manager
        self.id = id_
        self.peer = peer
        self._handle_message = on_message
        self._handle_loss = on_lost
        self.is_over = False

    def send(self, kind: str, value: Any = None) -> None:
        """Send a message; no effect after the end."""
        if not self.is_over and self.peer:
            self._manager.send(self, msgpack.packb([self.id, kind, value]))

    def on_message(self, kind: str, value: Any) -> None:
        if self.is_over or kind == "ping":
            return
        try:
            self._handle_message(kind, value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            log.info("Closing a tunnel after a malformed message: %s", error)
            self.fail()

    def close(self) -> None:
        """Stop sending and receiving. Safe to repeat."""
        self.is_over = True
        self._manager.forget(self)

    def fail(self) -> None:
        """Close the tunnel because the peer is lost."""
        if not self.is_over:
            self.close()
            self._handle_loss()


class TunnelManager:
    """One side's tunnels, on one connection of its event loop."""

    def __init__(self, url: str | None = None) -> None:
        self.channel = f"slipway:tunnels:{uuid4().hex}"
        self._link = RedisConnection(
            url or settings.REDIS_URL, on_push=self._on_push, on_lost=self._fail_all
        )
        self._tunnels: dict[bytes, Tunnel] = {}
        self._is_listening = False
        self._pinging: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Subscribe to the channel. Raises `RedisLost`."""
        if not self._link.is_up:
            await self._link.connect()
        if not self._is_listening:
            [reply] = self._link.send([("SUBSCRIBE", self.channel), ("PING",)])
            await reply  # earlier messages would be lost
            self._is_listening = True

    def open(
        self,
        id_: bytes,
        peer: str,
        on_message: Callable[[str, Any], None],
        on_lost: Callable[[], None],
    ) -> Tunnel:
        """Open an end of a tunnel; `peer` is the other side's channel, empty while unknown."""
        tunnel = Tunnel(self, id_, peer, on_message, on_lost)
        self._tunnels[id_] = tunnel
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.get_running_loop().create_task(self._ping(), name="tunnels")
        return tunnel

    def send(self, tunnel: Tunnel, packed: bytes) -> None:
        try:
            [sent] = self._link.send([("PUBLISH", tunnel.peer, packed)])
        except RedisLost:
            tunnel.fail()
            return
        sent.add_done_callback(lambda reply: _check_receivers(tunnel, reply))

    def forget(self, tunnel: Tunnel) -> None:
        self._tunnels.pop(tunnel.id, None)

    def close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        self._fail_all()
        self._link.close()

    # Internal

    def _on_push(self, _: bytes, payload: bytes) -> None:
        try:
            id_, kind, value = msgpack.unpackb(payload)
        except (ValueError, TypeError):
            log.warning("Discarding a malformed message from a tunnel.")
            return
        tunnel = self._tunnels.get(id_)
        if tunnel is not None:
            tunnel.on_message(kind, value)

    def _fail_all(self) -> None:
        self._is_listening = False
        for tunnel in list(self._tunnels.values()):
            tunnel.fail()

    async def _ping(self) -> None:
        while self._tunnels:
            await asyncio.sleep(PING_SECONDS)
            for tunnel in list(self._tunnels.values()):
                tunnel.send("ping")


def _check_receivers(tunnel: Tunnel, reply: asyncio.Future[Any]) -> None:
    if reply.cancelled() or reply.exception() is not None or not reply.result():
        tunnel.fail()


class FlowControlWindow:
    """The bytes that a sender may still send; `acquire` waits while there are none."""

    def __init__(self) -> None:
        self._available_bytes = WINDOW_BYTES
        self._more = asyncio.Event()
        self._more.set()
        self._closed = False

    async def acquire(self, size: int) -> None:
        """Wait until that much may be sent. Raises `ConnectionError` after `close`."""
        while self._available_bytes <= 0 and not self._closed:
            self._more.clear()
            await self._more.wait()
        if self._closed:
            raise ConnectionError
        self._available_bytes -= size

    def release(self, size: int) -> None:
        self._available_bytes += size
        self._more.set()

    def close(self) -> None:
        self._closed = True
        self._more.set()
