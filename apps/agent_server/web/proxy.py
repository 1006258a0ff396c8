"""Proxy for an agent's custom routes, which its graph host serves.

Responses are untrusted. On the platform's own origin they get a sandboxing content policy, and
their cookies are limited to the agent's path.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from weakref import WeakKeyDictionary

from django.conf import settings

from apps.agent_server.auth.custom_auth import AuthPending, strip_platform_credentials
from apps.agent_server.messaging.calls import CallFailed, acall
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.web.cors import ASGI_HEADERS
from apps.agent_server.web.http_context import Headers, HttpRequestContext, Response
from apps.agent_server.web.tunnels import MAX_MESSAGE_BYTES, FlowControlWindow, TunnelManager
from apps.api_keys import live_reauth
from apps.core import errors
from apps.core.http.middleware import as_app_error
from apps.core.json import dumps, loads
from apps.core.sync_bridge import in_thread
from apps.deployments.models import Revision
from apps.deployments.routes import Route
from apps.organizations.permissions import Permission

log = logging.getLogger(__name__)

Header = tuple[bytes, bytes]
MAX_CONCURRENT_REQUESTS = 200
"""Concurrent requests to one deployment's custom routes in one web process."""
_SANDBOX = b"sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"
# Headers that apply to the whole connection or the whole origin.
_FORBIDDEN_RESPONSE_HEADERS = frozenset(
    (
        *(b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"trailer"),
        *(b"clear-site-data", b"service-worker-allowed", b"strict-transport-security"),
    )
)


class ProxyTarget(NamedTuple):
    """The agent, the path below its root, and the root path."""

    route: Route
    path: str
    root_path: str


class CustomRoutesBusy(errors.Unavailable):
    code, detail = "own_routes_busy", "The agent's custom routes are busy."


class CustomRouteFailed(errors.AppError):
    """The agent's code ended without a response."""

    status, code, detail = (
        502,
        "own_route_failed",
        "The agent's custom route ended without a response.",
    )


_open: Counter[UUID] = Counter()
_switchboards: WeakKeyDictionary[asyncio.AbstractEventLoop, TunnelManager] = WeakKeyDictionary()


def switchboard() -> TunnelManager:
    """The tunnel manager of the running loop."""
    loop = asyncio.get_running_loop()
    manager = _switchboards.get(loop)
    if manager is None:
        manager = _switchboards[loop] = TunnelManager()
    return manager


async def proxy(target: ProxyTarget, scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Let the agent's application serve the request or the WebSocket."""
    if scope["type"] == "websocket":
        scope = {**scope, "method": "GET"}
    context = HttpRequestContext(scope, receive, send, {"slug": target.route.slug})
    deployment = target.route.deployment_id
    if _open[deployment] >= MAX_CONCURRENT_REQUESTS:
        await _fail(context, send, CustomRoutesBusy())
        return
    _open[deployment] += 1
    try:
        user = await _resolve_user(target.route, context)
        await _Proxy(target, context, receive, send).run(user)
    except ConnectionError:
        return
    except Exception as exception:
        error = as_app_error(exception)
        if error is None:
            raise
        await _fail(context, send, error)
    finally:
        _open[deployment] -= 1
        if not _open[deployment]:
            del _open[deployment]


async def _resolve_user(route: Route, context: HttpRequestContext) -> dict[str, Any] | None:
    """Authenticate the caller if the deployment enables it for custom routes; None otherwise."""
    if not route.serving.http.enable_custom_route_auth:
        return None

    def admit() -> dict[str, Any] | None:
        return context.admit(Permission.AGENTS_RUN).user()

    while True:
        try:
            return await in_thread(admit)
        except AuthPending:
            await context.auth_exchange().resolve()


async def _fail(context: HttpRequestContext, send: Any, error: errors.AppError) -> None:
    if context.scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4000 + error.status})
    elif not context.is_started:
        await context.send(Response(dumps(error.as_json()), error.status))


class _Proxy:
    """One request, on the side of the client."""

    def __init__(
        self, target: ProxyTarget, context: HttpRequestContext, receive: Any, send: Any
    ) -> None:
        self._target = target
        self._context = context
        self._receive = receive
        self._send = send
        self._is_http = context.scope["type"] == "http"
        self._inbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._window = FlowControlWindow()
        self._is_started = False
        self._is_finished = False

    async def run(self, user: dict[str, Any] | None) -> None:
        """Relay messages until either side ends the request."""
        tunnels = switchboard()
        try:
            await tunnels.listen()
        except RedisLost as error:
            raise CallFailed("RedisError", "The platform cannot reach its graphs now.") from error
        self._tunnel = tunnels.open(uuid4().bytes, "", self._on_message, self._on_lost)
        pumping: asyncio.Task[None] | None = None
        try:
            await self._begin(tunnels.channel, user)
            pumping = asyncio.create_task(self._pump())
            with live_reauth.revalidating(self._context.credential, self._refuse):
                await self._relay()
        finally:
            if pumping is not None:
                pumping.cancel()
            self._tunnel.send("web", {"type": "gone"})
            self._tunnel.close()

    async def _begin(self, channel: str, user: dict[str, Any] | None) -> None:
        route = self._target.route
        revision = Revision(
            pk=route.active_revision_id,
            deployment_id=route.deployment_id,
            workspace_id=route.workspace_id,
        )
        params = {
            "id": self._tunnel.id.hex(),
            "channel": channel,
            "scope": _describe_request(
                self._target, self._context.scope, self._context.headers, user
            ),
        }
        answer = loads(await acall(revision, "", "web", params, seconds=60))
        self._tunnel.peer = answer["channel"]

    # From the client

    async def _pump(self) -> None:
        """Forward the client's messages at the pace of the agent's code."""
        received = 0
        while True:
            message = await self._receive()
            kind = message["type"]
            if kind == "http.disconnect":
                self._inbox.put_nowait(("left", None))
                return
            for piece in _split_message(message):
                size = _message_size(piece)
                received += size
                if self._is_http and received > settings.MAX_BODY_BYTES:
                    self._inbox.put_nowait(("too large", None))
                    return
                await self._window.acquire(size)
                self._tunnel.send("web", piece)
            if kind == "websocket.disconnect":
                self._inbox.put_nowait(("left", None))
                return

    # From the agent's code

    def _on_message(self, kind: str, value: Any) -> None:
        if kind == "more":
            self._window.release(int(value))
        else:
            self._inbox.put_nowait((kind, value))

    def _refuse(self, error: errors.AppError) -> None:
        self._inbox.put_nowait(("refused", error))

    def _on_lost(self) -> None:
        self._inbox.put_nowait(("over", "The worker is lost."))

    async def _relay(self) -> None:
        """Return the agent's messages at the pace of the client."""
        while True:
            kind, value = await self._inbox.get()
            if kind == "left":
                return
            if kind == "too large":
                raise errors.TooLarge(f"The request body exceeds {settings.MAX_BODY_BYTES} bytes.")
            if kind == "refused":
                await self._dismiss(value)
                return
            if kind == "over":
                await self._on_end()
                return
            size = _message_size(value)
            await self._send_message(value)
            self._tunnel.send("more", size)
            if self._is_finished and self._is_http:
                return

    async def _send_message(self, message: dict[str, Any]) -> None:
        kind = str(message["type"])
        if kind == "http.response.start" and not self._is_started:
            self._is_started = self._context.is_started = True
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers") or ()]
            message = {
                "type": kind,
                "status": int(message["status"]),
                "headers": [
                    *_response_headers(headers, self._target),
                    self._context.request_id_header,
                ],
            }
        elif kind == "http.response.body" and self._is_started:
            self._is_finished = not message.get("more_body")
        elif kind == "websocket.accept" and not self._is_started:
            self._is_started = True
            message = {"type": kind, "subprotocol": message.get("subprotocol")}
        elif kind == "websocket.close":
            self._is_finished = True
        elif kind != "websocket.send" or not self._is_started:
            raise CustomRouteFailed
        await self._send(message)

    async def _dismiss(self, error: errors.AppError) -> None:
        """End the request of a caller who lost access; a started response is truncated."""
        if not self._is_http:
            await self._send({"type": "websocket.close", "code": 4000 + error.status})
        elif not self._is_started:
            raise error

    async def _on_end(self) -> None:
        """Handle the end of the agent's code; without a complete response it is an error."""
        if self._is_finished:
            return
        # Without the reason: it may contain text of the agent, which is private to its author.
        log.warning("A custom route of %s ended before its response.", self._target.route.slug)
        if not self._is_http:
            await self._send({"type": "websocket.close", "code": 1011})
        elif not self._is_started:
            raise CustomRouteFailed
        # Otherwise the response is truncated, which tells the client of the failure.


def _describe_request(
    target: ProxyTarget, scope: dict[str, Any], headers: Headers, user: dict[str, Any] | None
) -> dict[str, Any]:
    """The request for the agent's code."""
    path = f"{target.root_path}{target.path}"
    raw_headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]]
    return {
        "kind": scope["type"],
        "method": scope["method"],
        "scheme": scope.get("scheme", "http"),
        "path": path,
        "raw_path": path.encode().decode("latin-1"),
        "root_path": target.root_path,
        "query": scope["query_string"].decode("latin-1"),
        "headers": [*strip_platform_credentials(raw_headers)],
        "server": list(scope.get("server") or ("localhost", 80)),
        "client": list(scope.get("client") or ()),
        "subprotocols": list(scope.get("subprotocols") or ()),
        "user": user,
    }


def _response_headers(headers: Sequence[Header], target: ProxyTarget) -> Iterable[Header]:
    """The headers of the agent's response that may reach the client."""
    shares_origin = target.root_path.startswith("/agents/")
    for name, value in headers:
        lower = name.lower()
        if lower in _FORBIDDEN_RESPONSE_HEADERS:
            continue
        if lower == b"set-cookie" and shares_origin:
            if value.strip().partition(b"=")[0].decode("latin-1") not in _platform_cookies():
                yield b"set-cookie", _scope_cookie(value, target)
        else:
            yield lower, value
    if shares_origin:
        yield b"content-security-policy", _SANDBOX
    if not any(name.lower() == b"access-control-allow-origin" for name, _ in headers):
        yield from ASGI_HEADERS


def _platform_cookies() -> set[str]:
    return {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME}


def _scope_cookie(cookie: bytes, target: ProxyTarget) -> bytes:
    """Limit a cookie to this agent's path."""
    first, *rest = cookie.split(b";")
    kept = [
        part
        for part in rest
        if part.strip().lower().partition(b"=")[0] not in _COOKIE_SCOPE_ATTRIBUTES
    ]
    path = f"Path=/agents/{target.route.slug}".encode()
    return b"; ".join([first.strip(), *(part.strip() for part in kept), path])


_COOKIE_SCOPE_ATTRIBUTES = (b"path", b"domain")


def _split_message(message: dict[str, Any]) -> list[dict[str, Any]]:
    body = message.get("body") or b""
    if message["type"] != "http.request" or len(body) <= MAX_MESSAGE_BYTES:
        return [message]
    parts = [body[at : at + MAX_MESSAGE_BYTES] for at in range(0, len(body), MAX_MESSAGE_BYTES)]
    more = bool(message.get("more_body"))
    return [
        {**message, "body": part, "more_body": more or number < len(parts)}
        for number, part in enumerate(parts, start=1)
    ]


def _message_size(message: dict[str, Any]) -> int:
    """The size of a message in bytes, as both ends count it."""
    parts = (message.get(name) for name in ("body", "bytes", "text"))
    return sum(len(part) for part in parts if part) + 64
