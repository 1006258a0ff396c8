"""Serve the connections of one sandbox: an HTTP proxy, and forwards to fixed addresses.

Each connection has deadlines, and their number is bounded per sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from apps.core import ssrf
from apps.core.name_resolver import Resolver
from apps.core.ssrf import IPAddress

from . import package_index, upstream
from .package_index import Index
from .rules import AddressRefused, Rules

HEAD_SECONDS = 10.0
RESOLVE_SECONDS = 10.0
"""Waiting for a thread included: a build asks for many names at once."""
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 1800.0
"""Without a byte in either direction; a model may think for minutes."""
HALF_CLOSED_SECONDS = 120.0
"""The same after one side has sent everything."""
MAX_CONNECTIONS = 256
"""Per sandbox."""
_CHUNK_BYTES = 65_536
_RESCHEDULE_SECONDS = 1.0
_resolver = Resolver()


class RequestRejected(Exception):
    """The request is answered with this status and text."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(frozen=True, slots=True)
class RequestTarget:
    host: str
    port: int
    head: bytes | None = None
    """The request to send to a server of plain HTTP; None for `CONNECT`."""


class Connections:
    """The open connections of one sandbox."""

    def __init__(
        self,
        rules: Rules,
        *,
        uses_operator_proxy: bool,
        indexes: Mapping[int, Index] = MappingProxyType({}),
    ) -> None:
        self._rules = rules
        self._indexes = indexes
        """By the port of the loopback address that stands for each."""
        self._uses_operator_proxy = uses_operator_proxy
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def serve_proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to the proxy."""
        with self._counted(writer) as is_accepted:
            if not is_accepted:
                return
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    target = parse_head(await reader.readuntil(b"\r\n\r\n"))
                if target.head is not None and (index := self._find_index(target)) is not None:
                    await package_index.respond(index, target.head, writer)
                    return
                outside = await self._open(target)
            except package_index.IndexFailed as error:
                await _answer(writer, RequestRejected("502 Bad Gateway", str(error)))
                return
            except RequestRejected as error:
                await _answer(writer, error)
                return
            except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
            if target.head is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                outside[1].write(target.head)
            await relay((reader, writer), outside)

    async def serve_forward(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Connect to the fixed address, which the platform chose, and relay."""
        with self._counted(writer) as is_accepted:
            if is_accepted:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(CONNECT_SECONDS):
                        outside = await asyncio.open_connection(host, port)
                    await relay((reader, writer), outside)

    @contextlib.contextmanager
    def _counted(self, writer: asyncio.StreamWriter) -> Iterator[bool]:
        """Yield whether the connection is within the bound; close it in the end."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - called by the server's task
        is_accepted = len(self._tasks) < MAX_CONNECTIONS
        if is_accepted:
            self._tasks.add(task)
        try:
            yield is_accepted
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            if is_accepted:
                writer.close()
            else:
                writer.transport.abort()

    def _find_index(self, target: RequestTarget) -> Index | None:
        return self._indexes.get(target.port) if target.host == "127.0.0.1" else None

    async def _open(self, target: RequestTarget) -> Stream:
        """Resolve the name once and connect to the addresses that were checked."""
        host, port = target.host, target.port
        addresses = await self._resolve(host)
        operator_proxy = upstream.find(host) if self._uses_operator_proxy else None
        if not addresses and operator_proxy is None:
            raise RequestRejected("502 Bad Gateway", f"The host {host} cannot be resolved.")
        try:
            self._rules.check(host, port, addresses)
        except AddressRefused:
            raise RequestRejected(
                "403 Forbidden",
                f"{host} is on this machine or on a private network, which agents and builds may"
                " not reach (EGRESS_NETWORKS).",
            ) from None
        if operator_proxy is not None and not self._rules.is_allowed_host(host, port):
            try:
                return await upstream.connect(operator_proxy, host, port)
            except upstream.UpstreamFailed as error:
                raise RequestRejected("502 Bad Gateway", str(error)) from None
        return await _connect(host, port, addresses)

    async def _resolve(self, host: str) -> list[IPAddress]:
        """Return the addresses, or none; a sandbox holds few of the proxy's threads."""
        try:
            return await _resolver.resolve_async(host, RESOLVE_SECONDS, self)
        except ssrf.ResolutionFailed:
            return []


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def parse_head(head: bytes) -> RequestTarget:
    """Parse the head of a request to the proxy."""
    first, *fields = head[:-4].split(b"\r\n")
    try:
        method, address, version = first.decode("ascii").split(" ")
        parts = urlsplit(f"//{address}" if method == "CONNECT" else address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RequestRejected("400 Bad Request", "The request is malformed.") from None
    if not host or "@" in parts.netloc or (method == "CONNECT") == (parts.scheme == "http"):
        raise RequestRejected(
            "400 Bad Request", "This is a proxy: CONNECT, or the address of http://."
        )
    if method == "CONNECT":
        return RequestTarget(host, port or 443)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # The connection leads to one server, so it must not be used again for another one.
    kept = [
        field
        for field in fields
        if field.partition(b":")[0].strip().lower()
        not in (b"proxy-connection", b"proxy-authorization", b"connection", b"keep-alive")
    ]
    lines = [f"{method} {path} {version}".encode(), *kept, b"Connection: close"]
    return RequestTarget(host, port or 80, b"\r\n".join(lines) + b"\r\n\r\n")


async def _connect(host: str, port: int, addresses: list[IPAddress]) -> Stream:
    reason = "no address"
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(str(address), port)
        except TimeoutError:
            reason = "no answer"
        except OSError as error:
            reason = error.strerror or type(error).__name__
    raise RequestRejected("502 Bad Gateway", f"No connection to {host}:{port}: {reason}.")


async def _answer(writer: asyncio.StreamWriter, refusal: RequestRejected) -> None:
    text = refusal.text.encode()
    head = (
        f"HTTP/1.1 {refusal.status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + text)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEAD_SECONDS):
            await writer.drain()


async def relay(inside: Stream, outside: Stream) -> None:
    """Copy bytes in both directions until both sides have ended, or the connection is idle."""
    loop = asyncio.get_running_loop()
    idle_seconds = IDLE_SECONDS
    try:
        async with asyncio.timeout(idle_seconds) as deadline:

            async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal idle_seconds
                touched_at = loop.time()
                while data := await reader.read(_CHUNK_BYTES):
                    writer.write(data)
                    await writer.drain()
                    if loop.time() - touched_at > _RESCHEDULE_SECONDS:
                        touched_at = loop.time()
                        deadline.reschedule(touched_at + idle_seconds)
                writer.write_eof()
                idle_seconds = HALF_CLOSED_SECONDS
                deadline.reschedule(loop.time() + idle_seconds)

            async with asyncio.TaskGroup() as copies:
                copies.create_task(copy(inside[0], outside[1]))
                copies.create_task(copy(outside[0], inside[1]))
    except* (OSError, TimeoutError, RuntimeError):
        inside[1].transport.abort()
    finally:
        outside[1].close()
