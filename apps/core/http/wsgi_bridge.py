"""Django's WSGI handler behind ASGI, on a pool of long-lived threads.

An ordinary request costs a fraction of what it costs under Django's ASGI handler, and long-lived
threads keep their database connections. See docs/adr/0002-web-process.md.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from apps.core import errors
from apps.core.http import body_memory
from apps.core.http.body_memory import MemoryOwner
from apps.core.http.body_reader import AsgiScope, BodyTooSlow, Receive, read_body
from apps.core.http.loop_response import LoopResponse
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread, thread_pool

log = logging.getLogger(__name__)

Send = Callable[[dict[str, Any]], Awaitable[None]]
WSGIApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

ErrorEncoder = Callable[[AsgiScope, errors.AppError], tuple[bytes, bytes] | None]
"""Returns the content type and the body of the response to a refused request; None for JSON."""

_CHUNK_BYTES = 262_144


class WSGIBridge:
    """An ASGI application that serves HTTP by calling a WSGI application on the thread pool.

    A thread is held while the application runs, and while it produces a chunk of a stream. No
    thread waits for a client: the event loop reads bodies and sends responses. A `LoopResponse`
    needs no thread at all.
    """

    def __init__(
        self,
        application: WSGIApplication,
        authenticate: Callable[[AsgiScope], Awaitable[MemoryOwner]] | None = None,
        encode_error: ErrorEncoder | None = None,
    ) -> None:
        """`authenticate` identifies the sender of a large body before it is read.

        `encode_error` encodes the refusal of a body for protocols that do not read JSON.
        """
        self.application = application
        self._authenticate = authenticate
        self._encode_error = encode_error

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        authenticate = partial(self._authenticate, scope) if self._authenticate else None
        with body_memory.body_memory_budget.reserve() as reservation:
            try:
                body = await read_body(scope, receive, reservation, authenticate)
            except errors.AppError as error:
                encoded = self._encode_error(scope, error) if self._encode_error else None
                await send_error(send, error, encoded)
                return
            except ConnectionError:
                return
            environ = build_environ(scope, body)
            environ[body_memory.RESERVATION_KEY] = reservation
            del body
            loop = asyncio.get_running_loop()
            response = await loop.run_in_executor(thread_pool(), self._respond, environ)
        with suppress(OSError):  # the client closed the connection
            await response.send(receive, send)

    def _respond(self, environ: dict[str, Any]) -> _Response | _LoopStream:
        """Call the WSGI application. Runs on the thread pool."""
        start: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            start["status"] = int(status.split(" ", 1)[0])
            start["headers"] = [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
            ]

        result = self.application(environ, start_response)
        if isinstance(result, LoopResponse):
            return _LoopStream(start, result, is_head=environ["REQUEST_METHOD"] == "HEAD")
        response = _Response(start, result)
        if environ["REQUEST_METHOD"] == "HEAD":
            response.close()
        else:
            response.read_chunk()
        return response


class _Response:
    """A response whose content is produced on the thread pool and sent by the event loop."""

    def __init__(self, start: dict[str, Any], result: Any) -> None:
        self._start = start
        self._result = result
        self._iterator = iter(result)
        self._chunk = b""
        self._is_closed = False

    def read_chunk(self) -> bool:
        """Read the next chunk, of about `_CHUNK_BYTES`; return whether more may follow.

        After the last one the response is closed.
        """
        if not getattr(self._result, "streaming", True):
            self._chunk = self._result.content
            self.close()
            return False
        parts: list[bytes] = []
        size = 0
        try:
            for part in self._iterator:
                parts.append(part)
                size += len(part)
                if size >= _CHUNK_BYTES:
                    break
            else:
                self.close()
        except BaseException:
            self.close()
            raise
        self._chunk = parts[0] if len(parts) == 1 else b"".join(parts)
        return not self._is_closed

    def close(self) -> None:
        """Close the files and connections of the response. Safe to repeat."""
        if not self._is_closed:
            self._is_closed = True
            close = getattr(self._result, "close", None)
            if close is not None:
                close()

    async def send(self, receive: Receive, send: Send) -> None:
        """Send the response at the pace of the client, until it disconnects."""
        start = {"type": "http.response.start", **self._start}
        if self._is_closed:
            await send(start)
            await send({"type": "http.response.body", "body": self._chunk})
            return
        disconnect = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await send(start)
            has_more = True
            while has_more:
                await send({"type": "http.response.body", "body": self._chunk, "more_body": True})
                if disconnect.done():
                    return
                has_more = await in_thread(self.read_chunk)
            await send({"type": "http.response.body", "body": self._chunk})
        finally:
            disconnect.cancel()
            if not self._is_closed:
                await in_thread(self.close)


class _LoopStream:
    """A response that the event loop produces and sends."""

    def __init__(self, start: dict[str, Any], response: LoopResponse, *, is_head: bool) -> None:
        self._start = start
        self._response = response
        self._is_head = is_head
        self._is_started = False

    async def send(self, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the client disconnects, which cancels it."""
        producer = asyncio.create_task(self._produce(send))
        disconnect = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({producer, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if not producer.done():
                producer.cancel()
                with suppress(asyncio.CancelledError):
                    await producer
                return
            producer.result()
        finally:
            producer.cancel()
            disconnect.cancel()
            await in_thread(self._response.close)

    async def _produce(self, send: Send) -> None:
        try:
            async with aclosing(self._response.stream) as stream:
                async for chunk in stream:
                    await self._send_start(send)
                    if self._is_head:
                        break
                    message = {"type": "http.response.body", "body": chunk, "more_body": True}
                    await send(message)
            await self._send_start(send)
            await send({"type": "http.response.body", "body": b""})
        except errors.AppError as error:
            if self._is_started:
                raise
            await self._send_error(send, error)
        except Exception:
            if self._is_started:
                raise
            log.exception("A streamed response failed.")
            await self._send_error(send, errors.AppError())

    async def _send_start(self, send: Send) -> None:
        if not self._is_started:
            self._is_started = True
            await send({"type": "http.response.start", **self._start})

    async def _send_error(self, send: Send, error: errors.AppError) -> None:
        """Send the error in the place of the stream, with its CORS and request id headers."""
        headers = [
            (name, value) for name, value in self._start["headers"] if name[:8] != b"content-"
        ]
        headers.append((b"content-type", b"application/json"))
        headers += [
            (name.lower().encode(), value.encode()) for name, value in error.headers.items()
        ]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": dumps(error.as_json())})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def build_environ(scope: AsgiScope, body: io.BytesIO) -> dict[str, Any]:
    """Return the WSGI environment of an ASGI HTTP scope (PEP 3333)."""
    server = scope.get("server") or ("localhost", 80)
    client = scope.get("client") or ("", 0)
    length = body.getbuffer().nbytes
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": path_info(scope),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0] or "localhost",
        "SERVER_PORT": str(server[1] or 80),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "CONTENT_LENGTH": str(length) if length else "",
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if name == "content-length":
            continue
        if name == "content-type":
            environ["CONTENT_TYPE"] = value
            continue
        if "_" in name:  # would be indistinguishable from the header with a dash
            continue
        key = "HTTP_" + name.upper().replace("-", "_")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


def path_info(scope: AsgiScope) -> str:
    """Return the path as WSGI defines it: its bytes decoded as Latin-1."""
    raw = scope.get("raw_path")
    if raw is not None and "agent_root" not in scope:
        return unquote_to_bytes(raw.split(b"?", 1)[0]).decode("latin-1")
    return str(scope["path"]).encode().decode("latin-1")


_RETRYABLE = {errors.RateLimited.status, errors.Unavailable.status}


async def send_error(
    send: Send, error: errors.AppError, encoded: tuple[bytes, bytes] | None = None
) -> None:
    """Send an error, by default as JSON, from code without a Django request."""
    content_type, body = encoded or (b"application/json", dumps(error.as_json()))
    headers = [(b"content-type", content_type)]
    if error.status in _RETRYABLE:
        headers.append((b"retry-after", b"1"))
    if error.status == BodyTooSlow.status:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
