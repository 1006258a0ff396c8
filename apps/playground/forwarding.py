"""Forwards calls of models from the web processes to the playground's own process.

The playground process has the whole platform's code, so it authenticates, limits and records a
call as a web process would. It serves only what a web process forwards: each forwarded request
carries a signature over its route and the address of its client.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
from django.core import signing

from apps.core import errors
from apps.core.http.asgi import Application, run_lifespan
from apps.core.http.body_reader import AsgiScope
from apps.core.http.middleware import canonical
from apps.core.http.wsgi_bridge import send_error

log = logging.getLogger(__name__)

CALL_ROUTES = (
    *("playground-stream", "playground-tool-call"),
    *("invoke-prompt", "prompt-canvas", "generate", "generate-query"),
)
"""Names of the routes that call models and tools."""
_CALL_PATH = re.compile(
    r"/o/[0-9a-f-]{36}/playground/(stream|tools/call)"
    r"|/prompts/(invoke_prompt|canvas)|/generate|/runs/generate-query"
)
SIGNATURE_HEADER = b"x-slipway-forwarded"
_SALT = "apps.playground.forwarding"
_MAX_AGE_SECONDS = 60
CONNECT_SECONDS = 5.0
_READ_BYTES = 65_536
_DROPPED_HEADERS = frozenset({
    b"connection", b"date", b"expect", b"keep-alive", b"proxy-authorization", b"proxy-connection",
    b"server", b"te", b"trailer", b"transfer-encoding", b"upgrade", SIGNATURE_HEADER,
})  # fmt: skip


def is_call(scope: AsgiScope) -> bool:
    """Whether the request calls a model or a tool for the playground."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    return _CALL_PATH.fullmatch(canonical(scope["path"])) is not None


def _route(scope: AsgiScope) -> list[str]:
    return [scope["method"], scope["path"], scope["query_string"].decode("latin-1")]


def sign(scope: AsgiScope) -> bytes:
    """Return the header value with which a web process forwards this request."""
    client = scope.get("client")
    value = {
        "client": None if client is None else client[0],
        "scheme": scope.get("scheme", "http"),
        "route": _route(scope),
    }
    return signing.dumps(value, salt=_SALT).encode()


def read_forwarded(scope: AsgiScope) -> AsgiScope | None:
    """Return the scope of a forwarded request as the web process had it; None for any other."""
    signatures = [value for name, value in scope["headers"] if name == SIGNATURE_HEADER]
    if len(signatures) != 1:
        return None
    try:
        value = signing.loads(signatures[0].decode("latin-1"), salt=_SALT, max_age=_MAX_AGE_SECONDS)
    except signing.BadSignature:
        return None
    if value["route"] != _route(scope):
        return None
    return {
        **scope,
        "client": None if value["client"] is None else (value["client"], 0),
        "scheme": value["scheme"],
        "headers": [header for header in scope["headers"] if header[0] != SIGNATURE_HEADER],
    }


@dataclass(frozen=True, slots=True)
class PlaygroundAddress:
    """Where the playground's processes listen: a socket on this machine, or a host and a port."""

    socket: Path | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, url: str | None, socket: Path) -> PlaygroundAddress:
        """Return the address of the URL; without one, the socket. Raises `ValueError`."""
        if not url:
            return cls(socket)
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"PLAYGROUND_URL must be an http address, not {url!r}.")
        return cls(None, parts.hostname or "", parts.port or 80)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises `OSError` and `TimeoutError`."""
        async with asyncio.timeout(CONNECT_SECONDS):
            if self.socket is not None:
                return await asyncio.open_unix_connection(self.socket)
            return await asyncio.open_connection(self.host, self.port)


class PlaygroundForwarder:
    """Passes calls of models to the playground's process, and everything else to `fallback`."""

    def __init__(self, address: PlaygroundAddress, fallback: Application) -> None:
        self._address = address
        self._fallback = fallback

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        if not is_call(scope):
            await self._fallback(scope, receive, send)
            return
        try:
            reader, writer = await self._address.connect()
        except (OSError, TimeoutError):
            await send_error(send, errors.Unavailable("The playground does not respond. Retry."))
            return
        exchange = _ForwardedCall(scope, reader, writer)
        upload = asyncio.create_task(exchange.send_request(receive))
        download = asyncio.create_task(exchange.send_response(send))
        try:
            await asyncio.wait({upload, download}, return_when=asyncio.FIRST_COMPLETED)
            if download.done():
                download.result()
            elif isinstance(upload.exception(), h11.LocalProtocolError):
                await send_error(send, errors.BadRequest("The request's head is not valid."))
        finally:
            # Also when the client disconnects: the closed connection stops the call.
            writer.transport.abort()
            for task in (upload, download):
                task.cancel()
            await asyncio.gather(upload, download, return_exceptions=True)


class _ForwardedCall:
    """One forwarded request and its response, both as they come."""

    def __init__(
        self, scope: AsgiScope, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._scope = scope
        self._reader = reader
        self._writer = writer
        self._connection = h11.Connection(h11.CLIENT)

    async def send_request(self, receive: Callable[[], Awaitable[Any]]) -> None:
        """Send the request, and return when the client disconnects."""
        try:
            await self._write(self._head())
            while (message := await receive())["type"] == "http.request":
                if body := message.get("body"):
                    await self._write(h11.Data(data=body))
                if not message.get("more_body"):
                    await self._write(h11.EndOfMessage())
                    break
            else:
                return
        except OSError:
            # The response, or the end of the connection, says why.
            await asyncio.Event().wait()
        while (await receive())["type"] != "http.disconnect":
            pass

    def _head(self) -> h11.Request:
        scope = self._scope
        target = (scope.get("raw_path") or scope["path"].encode()).split(b"?", 1)[0]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = [header for header in scope["headers"] if header[0] not in _DROPPED_HEADERS]
        if not any(name == b"content-length" for name, _ in headers):
            headers.append((b"transfer-encoding", b"chunked"))
        headers += [(SIGNATURE_HEADER, sign(scope)), (b"connection", b"close")]
        return h11.Request(method=scope["method"], target=target, headers=headers)

    async def _write(self, event: h11.Event) -> None:
        self._writer.write(self._connection.send(event) or b"")
        await self._writer.drain()

    async def send_response(self, send: Callable[[Any], Awaitable[None]]) -> None:
        """Send the response to the client; without one, an error."""
        is_started = False
        try:
            while not isinstance(event := await self._next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    headers = [
                        (name, value)
                        for name, value in event.headers
                        if name not in _DROPPED_HEADERS
                    ]
                    is_started = True
                    start = {"type": "http.response.start", "status": event.status_code}
                    await send({**start, "headers": headers})
                elif isinstance(event, h11.Data):
                    body = bytes(event.data)
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                elif not isinstance(event, h11.InformationalResponse):
                    raise ConnectionResetError
        except (OSError, h11.RemoteProtocolError):
            log.warning("The playground's process closed the connection during a response.")
            if not is_started:
                text = "The playground ended before it responded. Retry."
                await send_error(send, errors.Unavailable(text))
            return
        await send({"type": "http.response.body", "body": b""})

    async def _next_event(self) -> object:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            self._connection.receive_data(await self._reader.read(_READ_BYTES))
        return event


class ForwardedCalls:
    """The application of the playground's process: serves forwarded calls, and `/healthz`."""

    def __init__(
        self,
        calls: Application,
        *,
        on_startup: Callable[[], None],
        on_shutdown: Callable[[], None],
    ) -> None:
        self._calls = calls
        self._on_startup = on_startup
        self._on_shutdown = on_shutdown

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await run_lifespan(receive, send, self._on_startup, self._on_shutdown)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 4404})
        elif scope["path"] == "/healthz":
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"ok":true}'})
        elif (forwarded := read_forwarded(scope)) is None or not is_call(forwarded):
            await send_error(send, errors.NotFound())
        else:
            await self._calls(forwarded, receive, send)
