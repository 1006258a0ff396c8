"""Support for the SDK's `get_client()` without a URL: requests of a graph to its own server.

The SDK imports the server from `langgraph_api`, so this module installs modules of that name with a
transport over the worker's socket. The worker executes the request for this host's deployment only.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Coroutine
from types import ModuleType
from typing import Any, TypeVar

import httpx

from .rpc import RpcClient
from .wire import Frame

MAX_MESSAGE_BYTES = 64 * 1024
T = TypeVar("T")


class LoopbackRequest:
    """One request of a graph to its server."""

    def __init__(self, rpc: RpcClient, number: int) -> None:
        self._rpc = rpc
        self._number = number
        self.messages: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._is_over = False

    def send(self, kind: str, value: Any = None) -> None:
        self._rpc.link.send(("loop", 0, self._number, kind, value))

    async def response_start(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Wait for status and headers of the response."""
        kind, value = await self.messages.get()
        if kind != "web" or value["type"] != "http.response.start":
            raise httpx.ConnectError(str(value or "The server did not answer."))
        return value["status"], [(bytes(name), bytes(text)) for name, text in value["headers"]]

    async def next_part(self) -> bytes | None:
        """Return the next part of the body; None at its end."""
        if self._is_over:
            return None
        kind, value = await self.messages.get()
        if kind != "web":
            self._is_over = True
            raise httpx.ReadError("The server aborted the response.")
        body: bytes = value.get("body") or b""
        self._is_over = not value.get("more_body")
        self.send("more", len(body) + 64)
        return body

    async def cancel(self) -> None:
        """Tell the worker that the response is not needed any more."""
        if not self._is_over:
            self._is_over = True
            self.send("gone")


class Loopback:
    """The open requests of this host to its server."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._numbers = itertools.count(1)
        self._calls: dict[int, LoopbackRequest] = {}

    def on_frame(self, frame: Frame) -> None:
        """Handle a `loop` frame of the worker: `[_, number, kind, value]`."""
        _, number, kind, value = frame
        call = self._calls.get(number)
        if call is not None:
            call.messages.put_nowait((kind, value))

    async def open(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> LoopbackRequest:
        number = next(self._numbers)
        call = self._calls[number] = LoopbackRequest(self._rpc, number)
        path, _, query = target.partition(b"?")
        request = {
            "method": method,
            "path": path,
            "query": query,
            "headers": [[name, value] for name, value in headers],
        }
        call.send("open", request)
        parts = [
            body[at : at + MAX_MESSAGE_BYTES] for at in range(0, len(body), MAX_MESSAGE_BYTES)
        ] or [b""]
        for number, part in enumerate(parts, start=1):
            call.send("web", {"body": part, "more_body": number < len(parts)})
            if self._rpc.link.is_full:
                await self._rpc.link.drain()
        return call

    def forget(self, call: LoopbackRequest) -> None:
        for number, open_call in list(self._calls.items()):
            if open_call is call:
                del self._calls[number]

    async def run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the host's loop; the graph's code may use another one."""
        if self._rpc.is_loop_thread:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._rpc.loop))

    def install(self) -> None:
        """Install the modules that the SDK imports."""
        loopback = self

        class Transport(httpx.AsyncBaseTransport):
            """Constructed by the SDK as `ASGITransport(app, root_path=...)`."""

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
    call = await loopback.run_on_loop(opening)
    limit = request.extensions.get("timeout", {}).get("read")
    try:
        async with asyncio.timeout(limit):
            status, headers = await loopback.run_on_loop(call.response_start())
    except TimeoutError:
        await loopback.run_on_loop(_close(loopback, call))
        raise httpx.ReadTimeout("The server did not answer in time.", request=request) from None
    except BaseException:
        await loopback.run_on_loop(_close(loopback, call))
        raise
    return httpx.Response(status, headers=headers, stream=_Body(loopback, call), request=request)


async def _close(loopback: Loopback, call: LoopbackRequest) -> None:
    await call.cancel()
    loopback.forget(call)


class _Body(httpx.AsyncByteStream):
    """The response body as a stream."""

    def __init__(self, loopback: Loopback, call: LoopbackRequest) -> None:
        self._loopback = loopback
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._loopback.run_on_loop(self._call.next_part())) is not None:
            yield part

    async def aclose(self) -> None:
        await self._loopback.run_on_loop(_close(self._loopback, self._call))
