"""What the graphs of a host ask of their own server: `get_client()` without an address.

The request came over the host's socket, so it is known whose it is: it is put to the server for
that deployment and no other, past the agent's own authentication, as its author's code. The server
is the very application that the web process runs.
"""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from django.conf import settings

from apps.agent_server.auth import loopback
from apps.agent_server.web.tunnels import WINDOW_BYTES, FlowControlWindow
from apps.core.sync_bridge import in_thread
from apps.deployments.models import Deployment
from apps.graph_host.wire import Frame

if TYPE_CHECKING:
    from apps.agent_runtime.hosts.graph_host import GraphHost

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 200
_NOT_PASSED_ON = frozenset(
    (b"host", b"x-api-key", b"authorization", b"cookie", b"x-auth-scheme", b"x-tenant-id")
)


class OwnCalls:
    """The open requests of one host's graphs."""

    def __init__(self, host: GraphHost) -> None:
        self._host = host
        self._calls: dict[int, OwnCall] = {}
        self._slug: str | None = None

    def take(self, frame: Frame) -> None:
        """A `loop` frame: `[_, 0, number, kind, value]`."""
        try:
            _, _, number, kind, value = frame
            self._take(int(number), kind, value)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            logger.info("A host sent a malformed `loop`: %s", error)

    def _take(self, number: int, kind: str, value: Any) -> None:
        call = self._calls.get(number)
        if kind == "open" and call is None:
            if len(self._calls) >= MOST_AT_ONCE:
                self._host.link.send(("loop", number, "over", "Too many calls at once."))
                return
            call = self._calls[number] = OwnCall(self, self._host, number, value)
            call.task.add_done_callback(lambda _: self._calls.pop(number, None))
        elif call is not None:
            call.hear(kind, value)

    def lost(self) -> None:
        """The host is gone, and nobody wants the answers."""
        for call in list(self._calls.values()):
            call.task.cancel()

    async def slug(self) -> str:
        """The address of the host's deployment."""
        if self._slug is None:
            self._slug = await in_thread(_slug_of, self._host.revision.deployment_id)
        return self._slug


class OwnCall:
    """One request."""

    def __init__(
        self, calls: OwnCalls, host: GraphHost, number: int, asked: dict[str, Any]
    ) -> None:
        self._calls = calls
        self._host = host
        self._number = number
        self._heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._window = FlowControlWindow()
        self._waiting = 0
        self.task = asyncio.get_running_loop().create_task(self._run(asked))

    def hear(self, kind: str, value: Any) -> None:
        if kind == "more":
            self._window.release(int(value))
        elif kind == "gone":
            self._window.close()
            self._heard.put_nowait({"type": "http.disconnect"})
        elif kind == "web":
            body, more = bytes(value.get("body") or b""), bool(value.get("more_body"))
            self._waiting += len(body)
            if self._waiting > settings.MAX_BODY_BYTES + WINDOW_BYTES:
                self.task.cancel()
            self._heard.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def _run(self, asked: dict[str, Any]) -> None:
        reason = None
        try:
            scope = _scope(await self._calls.slug(), self._host.revision.deployment_id, asked)
            application = import_module("config.asgi").application
            await application(scope, self._heard.get, self._send)
        except ConnectionError:
            reason = "The caller has left."
        except Exception:
            logger.exception("A graph's call to its own server failed.")
            reason = "The server failed."
        self._host.link.send(("loop", self._number, "over", reason))

    async def _send(self, message: dict[str, Any]) -> None:
        await self._window.acquire(len(message.get("body") or b"") + 64)
        if self._host.link.is_full:
            await self._host.link.drain()
        self._host.link.send(("loop", self._number, "web", _plain(message)))


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    if "headers" in message:
        return {**message, "headers": [[name, value] for name, value in message["headers"]]}
    return message


def _scope(slug: str, deployment_id: Any, asked: dict[str, Any]) -> dict[str, Any]:
    path = bytes(asked["path"])
    target = f"/agents/{slug}".encode() + path
    headers = [
        (bytes(name).lower(), bytes(value))
        for name, value in asked["headers"]
        if bytes(name).lower() not in _NOT_PASSED_ON
        and bytes(name).lower() != loopback.HEADER.lower().encode()
    ]
    hosts = [name for name in settings.ALLOWED_HOSTS if name != "*"]
    own = (hosts[0].lstrip(".") if hosts else "localhost").encode()
    passed = (loopback.HEADER.lower().encode(), loopback.make_token(deployment_id).encode())
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": str(asked["method"]).upper(),
        "scheme": "http",
        "path": unquote_to_bytes(target).decode("utf-8", "replace"),
        "raw_path": target,
        "query_string": bytes(asked["query"]),
        "root_path": "",
        "headers": [(b"host", own), *headers, passed],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
    }


def _slug_of(deployment_id: Any) -> str:
    deployments = Deployment.objects.across_workspaces(reason="a host knows its deployment's id")
    slug: str = deployments.values_list("slug", flat=True).get(pk=deployment_id)
    return slug
