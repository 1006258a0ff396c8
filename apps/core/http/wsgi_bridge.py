"""Django's WSGI handler behind ASGI, on a pool of long-lived threads.

An ordinary request costs a fraction of what it costs under Django's ASGI handler, and long-lived
threads keep their database connections. See docs/adr/0002-web-process.md.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.http import FileResponse

from apps.core import errors
from apps.core.http import body_memory
from apps.core.http.body_memory import Reservation
from apps.core.json import dumps
from apps.core.sync_bridge import thread_pool

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
WSGIApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WSGIBridge:
    """An ASGI application that serves HTTP by calling a WSGI application on the thread pool."""

    def __init__(self, application: WSGIApplication) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with body_memory.body_memory_budget.reserve() as reservation:
            try:
                body = await read_body(scope, receive, reservation)
            except errors.AppError as error:
                await send_error(send, error)
                return
            except ConnectionError:
                return
            environ = build_environ(scope, body)
            environ[body_memory.RESERVATION_KEY] = reservation
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(thread_pool(), self._respond, environ, loop, send)

    def _respond(
        self, environ: dict[str, Any], loop: asyncio.AbstractEventLoop, send: Send
    ) -> None:
        """Call the WSGI application and send its response."""
        start: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            start["status"] = int(status.split(" ", 1)[0])
            start["headers"] = [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
            ]

        def deliver(message: dict[str, Any]) -> None:
            # Waiting for each chunk slows the thread to the client's pace.
            asyncio.run_coroutine_threadsafe(_send_unless_closed(send, message), loop).result()

        response = self.application(environ, start_response)
        try:
            body = _whole_body(response)
            if body is not None:
                asyncio.run_coroutine_threadsafe(_send_whole(send, start, body), loop).result()
                return
            deliver({"type": "http.response.start", **start})
            for chunk in response:
                deliver({"type": "http.response.body", "body": chunk, "more_body": True})
            deliver({"type": "http.response.body", "body": b""})
        finally:
            close = getattr(response, "close", None)
            if close is not None:
                close()


def _whole_body(response: Any) -> bytes | None:
    """Return the body of a response held in memory; None for a streaming response."""
    if getattr(response, "streaming", True) or isinstance(response, FileResponse):
        return None
    content: bytes = response.content
    return content


async def _send_whole(send: Send, start: dict[str, Any], body: bytes) -> None:
    await _send_unless_closed(send, {"type": "http.response.start", **start})
    await _send_unless_closed(send, {"type": "http.response.body", "body": body})


async def _send_unless_closed(send: Send, message: dict[str, Any]) -> None:
    """Send, and ignore a connection that the client has closed."""
    try:
        await send(message)
    except OSError:
        return


async def read_body(
    scope: Scope, receive: Receive, reservation: Reservation | None = None
) -> io.BytesIO:
    """Read the request body.

    `reservation` accounts for the declared and the received bytes. Raises `TooLarge` past the
    limit, `BudgetExceeded` beyond the process's budget and `ConnectionError` when the client left.
    """
    names = {name for name, _ in scope["headers"]}
    if b"content-length" not in names and b"transfer-encoding" not in names:
        return io.BytesIO()
    limit = settings.MAX_BODY_BYTES
    declared = next((v for n, v in scope["headers"] if n == b"content-length"), b"0")
    if int(declared) > limit:
        raise errors.TooLarge(f"The request body exceeds {limit} bytes.")
    if reservation is not None:
        reservation.add(int(declared))
    body = io.BytesIO()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body.write(message.get("body", b""))
        if body.tell() > limit:
            raise errors.TooLarge(f"The request body exceeds {limit} bytes.")
        if reservation is not None and body.tell() > reservation.size:  # a chunked body
            reservation.add(body.tell() - reservation.size)
        if not message.get("more_body"):
            body.seek(0)
            return body


def build_environ(scope: Scope, body: io.BytesIO) -> dict[str, Any]:
    """The WSGI environment of an ASGI HTTP scope (PEP 3333)."""
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


def path_info(scope: Scope) -> str:
    """Return the path as WSGI defines it: its bytes decoded as Latin-1."""
    raw = scope.get("raw_path")
    if raw is not None and "agent_root" not in scope:
        return unquote_to_bytes(raw.split(b"?", 1)[0]).decode("latin-1")
    return str(scope["path"]).encode().decode("latin-1")


_RETRYABLE = {errors.RateLimited.status, errors.Unavailable.status}


async def send_error(send: Send, error: errors.AppError) -> None:
    """Send an error in the one error shape from code without a Django request."""
    await send(
        {
            "type": "http.response.start",
            "status": error.status,
            "headers": [
                (b"content-type", b"application/json"),
                *((b"retry-after", b"1") for _ in [0] if error.status in _RETRYABLE),
            ],
        }
    )
    await send({"type": "http.response.body", "body": dumps(error.as_json())})
