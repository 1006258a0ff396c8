"""One Redis connection that carries commands and pub/sub together, for one event loop.

RESP3 sends pub/sub messages out of band, so a subscription and the read of earlier messages are
sent in one write and answered in order. Commands are pipelined: each caller awaits its own reply
while later commands are sent. A general-purpose client needs a multiple of the CPU time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import hiredis
import redis
from django.conf import settings
from redis.asyncio.connection import SSLConnection, parse_url

Command = tuple[str | bytes | int, ...]
CONNECT_TIMEOUT_SECONDS = 5.0
# Answered by a push, not by a reply.
_PUSHED = frozenset({"SUBSCRIBE", "UNSUBSCRIBE"})
# The stub requires one-tuples; hiredis accepts any tuple.
_pack: Callable[[Any], bytes] = hiredis.pack_command


class RedisLost(ConnectionError):
    """The connection was lost; unanswered commands may or may not have been executed."""


class RedisConnection:
    """A connection that is opened on first use, and again after a loss on the next use.

    `on_push(channel, payload)` is called for each pub/sub message, `on_lost()` after each loss.
    """

    def __init__(
        self,
        url: str,
        *,
        on_push: Callable[[bytes, bytes], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._options: dict[str, Any] = dict(parse_url(url))
        self._on_push = on_push
        self._on_lost = on_lost
        self._wire: _RedisProtocol | None = None
        self._connecting = asyncio.Lock()

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    async def connect(self) -> None:
        """Return with the connection up; raises `RedisLost` when the server does not answer."""
        async with self._connecting:
            if self._wire is not None:
                return
            wire = _RedisProtocol(self._on_push, self._forget)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                    await _open_connection(self._options, wire)
                    await asyncio.gather(*wire.send(_handshake_commands(self._options)))
            except (OSError, hiredis.ReplyError) as error:
                wire.abort()
                raise RedisLost(str(error) or "no answer") from error
            except BaseException:
                wire.abort()
                raise
            if wire.is_lost:  # lost after the greeting: no callback follows
                raise RedisLost("Redis closed the connection")
            self._wire = wire

    def send(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        """Write the commands at once; the futures hold their replies, in order.

        (UN)SUBSCRIBE has no future. A refused command's future raises `hiredis.ReplyError`, a lost
        connection's `RedisLost`, as does this call while there is no connection.
        """
        if self._wire is None:
            raise RedisLost("not connected")
        return self._wire.send(commands)

    async def run(self, *commands: Command) -> list[Any]:
        """Connect if necessary, send, and return the replies. Raises `hiredis.ReplyError`."""
        if self._wire is None:
            await self.connect()
        return list(await asyncio.gather(*self.send(commands)))

    async def drained(self) -> None:
        """Wait until the socket's write buffer has space."""
        if self._wire is not None:
            await self._wire.writable.wait()

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        if self._wire is not None:
            self._wire.abort()

    def _forget(self, wire: _RedisProtocol) -> None:
        if wire is self._wire:
            self._wire = None
            if self._on_lost is not None:
                self._on_lost()


class _RedisProtocol(asyncio.Protocol):
    """The protocol of one connection."""

    transport: asyncio.Transport

    def __init__(
        self,
        on_push: Callable[[bytes, bytes], None] | None,
        on_lost: Callable[[_RedisProtocol], None],
    ) -> None:
        self.writable = asyncio.Event()
        self._on_push = on_push
        self._on_lost = on_lost
        self._reader = hiredis.Reader()
        self._pending_replies: deque[asyncio.Future[Any]] = deque()
        self.is_lost = False

    def send(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        make_future = asyncio.get_running_loop().create_future
        futures = [make_future() for command in commands if command[0] not in _PUSHED]
        if self.is_lost:
            raise RedisLost("Redis closed the connection")
        self._pending_replies.extend(futures)
        self.transport.write(b"".join([_pack(command) for command in commands]))
        return futures

    def abort(self) -> None:
        if hasattr(self, "transport"):
            self.transport.abort()
        self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                if not isinstance(reply, hiredis.PushNotification):
                    self._resolve_next(reply)
                elif reply[0] == b"message" and self._on_push is not None:
                    self._on_push(reply[1], reply[2])
        except hiredis.ProtocolError:
            self.abort()

    def _resolve_next(self, reply: Any) -> None:
        if not self._pending_replies:  # a rejected SUBSCRIBE: replies no longer match commands
            self.abort()
            return
        future = self._pending_replies.popleft()
        if future.done():  # its caller was cancelled
            return
        if isinstance(reply, hiredis.ReplyError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self.writable.set()  # a closed socket never drains
        for future in self._pending_replies:
            if not future.done():
                future.set_exception(RedisLost(str(exc) if exc else "Redis closed the connection"))
                future.exception()  # read here, so that an abandoned one is not logged
        self._pending_replies.clear()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


async def _open_connection(options: dict[str, Any], wire: _RedisProtocol) -> None:
    loop = asyncio.get_running_loop()
    if "path" in options:
        await loop.create_unix_connection(lambda: wire, options["path"])
        return
    secure = options.get("connection_class") is SSLConnection
    await loop.create_connection(
        lambda: wire,
        options.get("host", "localhost"),
        int(options.get("port", 6379)),
        ssl=_tls_context(options) if secure else None,
    )


def _handshake_commands(options: dict[str, Any]) -> list[Command]:
    hello: Command = ("HELLO", 3)
    if password := options.get("password"):
        hello += ("AUTH", options.get("username") or "default", password)
    commands = [hello]
    if database := options.get("db"):
        commands.append(("SELECT", int(database)))
    return commands


@cache
def blocking_client(name: str) -> redis.Redis:
    """Return this process's client of that name for threads, with timeouts of one second."""
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, client_name=name
    )


def _tls_context(options: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := options.get("ssl_certfile"):
        context.load_cert_chain(certificate, options.get("ssl_keyfile"))
    return context
