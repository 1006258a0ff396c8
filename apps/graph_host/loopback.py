"""`get_client()` without an address: the SDK's way from a graph to the server it runs in.

The SDK looks for its server under the name `langgraph_api`, so modules of that name are put there:
they hold a transport that speaks over the worker's socket. The worker asks the server on behalf of
this host's own deployment, and of no other.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Coroutine
from types import ModuleType
from typing import Any, TypeVar

import httpx

from .rpc import Desk
from .wire import Frame

PIECE = 64 * 1024
T = TypeVar("T")


class Call:
    """One request of a graph to its server."""

    def __init__(self, desk: Desk, number: int) -> None:
        self._desk = desk
        self._number = number
        self.heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._is_over = False

    def say(self, kind: str, value: Any = None) -> None:
        self._desk.link.send(("loop", 0, self._number, kind, value))

    async def begin(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Status and headers of the answer."""
        kind, value = await self.heard.get()
        if kind != "web" or value["type"] != "http.response.start":
            raise httpx.ConnectError(str(value or "The server did not answer."))
        return value["status"], [(bytes(name), bytes(text)) for name, text in value["headers"]]

    async def next(self) -> bytes | None:
        """The next part of the body; None at its end."""
        if self._is_over:
            return None
        kind, value = await self.heard.get()
        if kind != "web":
            self._is_over = True
            raise httpx.ReadError("The server's answer broke off.")
        body: bytes = value.get("body") or b""
        self._is_over = not value.get("more_body")
        self.say("more", len(body) + 64)
        return body

    async def leave(self) -> None:
        """Nothing more is wanted."""
        if not self._is_over:
            self._is_over = True
            self.say("gone")


class Loopback:
    """The open requests of this host to its server."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}

    def take(self, frame: Frame) -> None:
        """A `loop` frame of the worker: `[_, number, kind, value]`."""
        _, number, kind, value = frame
        call = self._calls.get(number)
        if call is not None:
            call.heard.put_nowait((kind, value))

    async def open(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> Call:
        number = next(self._numbers)
        call = self._calls[number] = Call(self._desk, number)
        path, _, query = target.partition(b"?")
        asked = {
            "method": method,
            "path": path,
            "query": query,
            "headers": [[name, value] for name, value in headers],
        }
        call.say("open", asked)
        parts = [body[at : at + PIECE] for at in range(0, len(body), PIECE)] or [b""]
        for place, part in enumerate(parts, start=1):
            call.say("web", {"body": part, "more_body": place < len(parts)})
            if self._desk.link.is_full:
                await self._desk.link.drain()
        return call

    def forget(self, call: Call) -> None:
        for number, found in list(self._calls.items()):
            if found is call:
                del self._calls[number]

    async def here(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on this host's loop, whatever loop the graph's code runs on."""
        if self._desk.is_this_thread:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._desk.loop))

    def install(self) -> None:
        """Be found by the SDK."""
        loopback = self

        class Transport(httpx.AsyncBaseTransport):
            """Made by the SDK as `ASGITransport(app, root_path=...)`."""

            def __init__(self, app: Any = None, **_: Any) -> None:
                self.app = app

            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                return await _answer(loopback, request)

        package, server = ModuleType("langgraph_api"), ModuleType("langgraph_api.server")
        transport = ModuleType("langgraph_api.asgi_transport")
        package.__path__ = []
        package.server, server.app = server, loopback  # type: ignore[attr-defined]
        package.asgi_transport = transport  # type: ignore[attr-defined]
        transport.ASGITransport = Transport  # type: ignore[attr-defined]
        for module in (package, server, transport):
            sys.modules.setdefault(module.__name__, module)


async def _answer(loopback: Loopback, request: httpx.Request) -> httpx.Response:
    body = await request.aread()
    opening = loopback.open(request.method, request.url.raw_path, list(request.headers.raw), body)
    call = await loopback.here(opening)
    limit = request.extensions.get("timeout", {}).get("read")
    try:
        async with asyncio.timeout(limit):
            status, headers = await loopback.here(call.begin())
    except TimeoutError:
        await loopback.here(_close(loopback, call))
        raise httpx.ReadTimeout("The server did not answer in time.", request=request) from None
    except BaseException:
        await loopback.here(_close(loopback, call))
        raise
    return httpx.Response(status, headers=headers, stream=_Body(loopback, call), request=request)


async def _close(loopback: Loopback, call: Call) -> None:
    await call.leave()
    loopback.forget(call)


class _Body(httpx.AsyncByteStream):
    """The parts of an answer, as they come."""

    def __init__(self, loopback: Loopback, call: Call) -> None:
        self._loopback = loopback
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._loopback.here(self._call.next())) is not None:
            yield part

    async def aclose(self) -> None:
        await self._loopback.here(_close(self._loopback, self._call))
