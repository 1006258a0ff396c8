"""Requests of graphs to their own Agent Server: `get_client()` without a URL.

The host's socket identifies the deployment, so a request reaches that deployment only. It bypasses
the agent's custom authentication, since it comes from the author's code. The worker calls the same
ASGI application that the web process runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote_to_bytes
from uuid import UUID

from django.conf import settings

from apps.agent_server.auth import loopback
from apps.agent_server.web.tunnels import WINDOW_BYTES, FlowControlWindow
from apps.core.sync_bridge import in_thread
from apps.deployments.models import Deployment
from apps.graph_host.wire import MALFORMED, Frame, Link, as_bytes

LoadAsgiApp = Callable[[], Callable[[Any, Any, Any], Awaitable[None]]]
"""Returns the ASGI application; called at the first request, since the import is expensive."""

logger = logging.getLogger(__name__)

MAX_OPEN_CALLS = 200
MESSAGE_BYTES = 16
"""Counted for each message, so that the number of empty ones is limited."""
_DROPPED_HEADERS = frozenset(
    (b"host", b"x-api-key", b"authorization", b"cookie", b"x-auth-scheme", b"x-tenant-id")
)


class LoopbackCalls:
    """The open requests of the graphs of one host."""

    def __init__(self, link: Link, deployment_id: UUID, load_asgi_app: LoadAsgiApp) -> None:
        self.link = link
        self.deployment_id = deployment_id
        self.load_asgi_app = load_asgi_app
        self._calls: dict[int, LoopbackCall] = {}
        self._slug: str | None = None

    def on_frame(self, frame: Frame) -> None:
        """Handle a `loop` frame: `[_, 0, number, kind, value]`."""
        try:
            _, _, number, kind, value = frame
            self._dispatch(int(number), kind, value)
        except MALFORMED as error:
            logger.info("Discarding a malformed `loop` frame: %s", error)

    def _dispatch(self, number: int, kind: str, value: Any) -> None:
        call = self._calls.get(number)
        if kind == "open" and call is None:
            if len(self._calls) >= MAX_OPEN_CALLS:
                self.link.send(("loop", number, "over", "Too many concurrent calls."))
                return
            call = self._calls[number] = LoopbackCall(self, number, value)
            call.task.add_done_callback(lambda _: self._calls.pop(number, None))
        elif call is not None:
            call.on_message(kind, value)

    def cancel_all(self) -> None:
        """Cancel all requests after the host exited."""
        for call in list(self._calls.values()):
            call.task.cancel()

    async def get_slug(self) -> str:
        """Return the slug of the host's deployment."""
        if self._slug is None:
            self._slug = await in_thread(_find_slug, self.deployment_id)
        return self._slug


class LoopbackCall:
    """One request."""

    def __init__(self, calls: LoopbackCalls, number: int, request: dict[str, Any]) -> None:
        self._calls = calls
        self._link = calls.link
        self._number = number
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._window = FlowControlWindow()
        self._queued_bytes = 0
        self._is_gone = False
        self.task = asyncio.get_running_loop().create_task(self._run(request))

    def on_message(self, kind: str, value: Any) -> None:
        if kind == "more":
            self._window.release(int(value))
        elif kind == "gone" and not self._is_gone:
            self._is_gone = True
            self._window.close()
            self._messages.put_nowait({"type": "http.disconnect"})
        elif kind == "web":
            body, more = as_bytes(value.get("body") or b""), bool(value.get("more_body"))
            self._queued_bytes += len(body) + MESSAGE_BYTES
            if self._queued_bytes > settings.MAX_BODY_BYTES + WINDOW_BYTES:
                if not self.task.cancelling():
                    self.task.cancel()
                    message = "The request body is too large."
                    self._link.send(("loop", self._number, "over", message))
                return
            self._messages.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def _run(self, request: dict[str, Any]) -> None:
        reason = None
        try:
            scope = _scope(await self._calls.get_slug(), self._calls.deployment_id, request)
            application = self._calls.load_asgi_app()
            await application(scope, self._messages.get, self._send)
        except ConnectionError:
            reason = "The caller disconnected."
        except Exception:
            logger.exception("A graph's request to its own server failed.")
            reason = "The server failed."
        self._link.send(("loop", self._number, "over", reason))

    async def _send(self, message: dict[str, Any]) -> None:
        await self._window.acquire(len(message.get("body") or b"") + 64)
        if self._link.is_full:
            await self._link.drain()
        self._link.send(("loop", self._number, "web", _serializable(message)))


def _serializable(message: dict[str, Any]) -> dict[str, Any]:
    if "headers" in message:
        return {**message, "headers": [[name, value] for name, value in message["headers"]]}
    return message


def _scope(slug: str, deployment_id: UUID, request: dict[str, Any]) -> dict[str, Any]:
    path = as_bytes(request["path"])
    target = f"/agents/{slug}".encode() + path
    headers = [
        (as_bytes(name).lower(), as_bytes(value))
        for name, value in request["headers"]
        if as_bytes(name).lower() not in _DROPPED_HEADERS
        and as_bytes(name).lower() != loopback.HEADER.lower().encode()
    ]
    hosts = [name for name in settings.ALLOWED_HOSTS if name != "*"]
    host = (hosts[0].lstrip(".") if hosts else "localhost").encode()
    token = (loopback.HEADER.lower().encode(), loopback.make_token(deployment_id).encode())
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": str(request["method"]).upper(),
        "scheme": "http",
        "path": unquote_to_bytes(target).decode("utf-8", "replace"),
        "raw_path": target,
        "query_string": as_bytes(request["query"]),
        "root_path": "",
        "headers": [(b"host", host), *headers, token],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
    }


def _find_slug(deployment_id: UUID) -> str:
    deployments = Deployment.objects.across_workspaces(
        reason="the graph host belongs to this deployment"
    )
    slug: str = deployments.values_list("slug", flat=True).get(pk=deployment_id)
    return slug
