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
from apps.agent_server.messaging import calls
from apps.agent_server.messaging.calls import CallFailed
from apps.agent_server.messaging.redis_connection import RedisLost
from apps.agent_server.web.cors import ASGI_HEADERS
from apps.agent_server.web.http_context import Headers, HttpRequestContext, Response
from apps.agent_server.web.tunnels import MAX_MESSAGE_BYTES, FlowControlWindow, TunnelManager
from apps.api_keys import live_reauth
from apps.core import errors
from apps.core.http.middleware import as_app_error
from apps.core.json import dumps, loads
from apps.core.sync_bridge import in_thread
from apps.deployments.routes import Route
from apps.organizations.permissions import Permission

log = logging.getLogger(__name__)

Header = tuple[bytes, bytes]
MAX_CONCURRENT_REQUESTS = 200
"""Concurrent requests to one deployment's custom routes in one web process."""
_SANDBOX = b"sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"
# Headers about the response itself. Others may apply to the connection or, for weeks, to the whole
# origin: `Alt-Svc`, `NEL`, `Report-To`, `Clear-Site-Data`, `Accept-CH`.
_RESPONSE_HEADERS = frozenset(
    (
        *(b"accept-ranges", b"age", b"allow", b"cache-control", b"content-disposition"),
        *(b"content-encoding", b"content-language", b"content-length", b"content-location"),
        *(b"content-range", b"content-security-policy", b"content-type", b"deprecation"),
        *(b"cross-origin-embedder-policy", b"cross-origin-opener-policy"),
        *(b"cross-origin-resource-policy", b"etag", b"expires", b"last-modified", b"link"),
        *(b"location", b"permissions-policy", b"pragma", b"preference-applied"),
        *(b"referrer-policy", b"request-id", b"retry-after", b"server-timing", b"sunset"),
        *(b"timing-allow-origin", b"traceparent", b"tracestate", b"vary", b"www-authenticate"),
    )
)
_RESPONSE_HEADER_PREFIXES = (b"access-control-", b"mcp-", b"ratelimit", b"webhook-", b"x-")
# A proxy in front of the platform executes them.
_PROXY_COMMANDS = (b"x-accel-", b"x-sendfile", b"x-lighttpd-", b"x-litespeed-")
_SCRIPT_DESTINATIONS = frozenset(
    (
        *(b"script", b"style", b"worker", b"sharedworker", b"serviceworker"),
        *(b"audioworklet", b"paintworklet"),
    )
)


class ProxyTarget(NamedTuple):
    """The agent, the path below its root, and the root path."""

    route: Route
    path: str
    root_path: str


class CustomRoutesBusy(errors.Unavailable):
    code, detail = "own_routes_busy", "The agent's custom routes are busy."


class ScriptOfAgent(errors.Forbidden):
    code = "script_of_agent"
    detail = "Pages of the platform do not load scripts or styles of agents."


class CustomRouteFailed(errors.AppError):
    """The agent's code ended without a response."""

    status, code, detail = (
        502,
        "own_route_failed",
        "The agent's custom route ended without a response.",
    )


_open: Counter[UUID] = Counter()
_tunnel_managers: WeakKeyDictionary[asyncio.AbstractEventLoop, TunnelManager] = WeakKeyDictionary()


def tunnel_manager() -> TunnelManager:
    """The tunnel manager of the running loop."""
    loop = asyncio.get_running_loop()
    manager = _tunnel_managers.get(loop)
    if manager is None:
        manager = _tunnel_managers[loop] = TunnelManager()
    return manager


async def proxy(target: ProxyTarget, scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Serve the request or the WebSocket with the agent's own application."""
    if scope["type"] == "websocket":
        scope = {**scope, "method": "GET"}
    context = HttpRequestContext(scope, receive, send, {"slug": target.route.slug})
    deployment = target.route.deployment_id
    if _shares_origin(target) and _is_script_of_platform_page(scope["headers"]):
        await _fail(context, send, ScriptOfAgent())
        return
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
    """One proxied request or WebSocket."""

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
        tunnels = tunnel_manager()
        try:
            await tunnels.listen()
        except RedisLost as error:
            raise CallFailed("RedisError", "The platform cannot reach its graphs now.") from error
        self._tunnel = tunnels.open(uuid4().bytes, "", self._on_message, self._on_lost)
        forwarding: asyncio.Task[None] | None = None
        try:
            await self._begin(tunnels.channel, user)
            forwarding = asyncio.create_task(self._forward_messages())
            with live_reauth.revalidating(self._context.credential, self._refuse):
                await self._relay()
        finally:
            if forwarding is not None:
                forwarding.cancel()
            self._tunnel.send("web", {"type": "gone"})
            self._tunnel.close()

    async def _begin(self, channel: str, user: dict[str, Any] | None) -> None:
        params = {
            "id": self._tunnel.id.hex(),
            "channel": channel,
            "scope": _describe_request(
                self._target, self._context.scope, self._context.headers, user
            ),
        }
        answer = loads(await calls.call_graph(self._target.route, "", "web", params))
        self._tunnel.peer = answer["channel"]

    # From the client

    async def _forward_messages(self) -> None:
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
        elif kind == "web":
            self._inbox.put_nowait((kind, validate_message(value)))
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
        kind = message["type"]
        if kind == "http.response.start" and not self._is_started:
            self._is_started = self._context.is_started = True
            message = {
                "type": kind,
                "status": message["status"],
                "headers": [
                    *_response_headers(message.get("headers") or (), self._target),
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
        # The reason is not logged: it may contain text that is private to the agent's author.
        log.warning("A custom route of %s ended before its response.", self._target.route.slug)
        if not self._is_http:
            await self._send({"type": "websocket.close", "code": 1011})
        elif not self._is_started:
            raise CustomRouteFailed
        # Otherwise the response is truncated, by which the client detects the failure.


def validate_message(message: Any) -> dict[str, Any]:
    """Return an ASGI message of the agent's process, which is untrusted.

    Raises an error that closes the tunnel (see `Tunnel.on_message`) for fields of other types than
    those of ASGI: `bytes` of an integer, for example, would allocate that many bytes.
    """
    fields = {"type": str, "body": bytes, "bytes": bytes, "text": str}
    for name, type_ in fields.items():
        if not isinstance(message.get(name), type_ | None):
            raise TypeError(f"{name}: not {type_.__name__}")
    if message["type"] == "http.response.start":
        headers = [(name, value) for name, value in message.get("headers") or ()]
        if not all(isinstance(part, bytes) for header in headers for part in header):
            raise TypeError("a header is not bytes")
        message = {**message, "status": int(message["status"]), "headers": headers}
    return message  # type: ignore[no-any-return]


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
    shares_origin = _shares_origin(target)
    for name, value in headers:
        lower = name.lower()
        if lower == b"set-cookie":
            cookie_name = value.partition(b";")[0].partition(b"=")[0].strip().decode("latin-1")
            if cookie_name and cookie_name not in _platform_cookies():
                yield b"set-cookie", _scope_cookie(value, target)
        elif _is_allowed(lower):
            yield lower, value
    if shares_origin:
        yield b"content-security-policy", _SANDBOX
    if not any(name.lower() == b"access-control-allow-origin" for name, _ in headers):
        yield from ASGI_HEADERS


def _shares_origin(target: ProxyTarget) -> bool:
    """Return whether the agent is addressed on the platform's own origin."""
    return target.root_path.startswith("/agents/")


def _is_script_of_platform_page(headers: Iterable[Header]) -> bool:
    """Return whether a page of this origin loads code.

    `script-src 'self'` of the platform's pages would admit it. Pages of agents on this origin are
    in a sandbox, whose requests are cross-site.
    """
    values = dict(headers)
    return (
        values.get(b"sec-fetch-site") == b"same-origin"
        and values.get(b"sec-fetch-dest") in _SCRIPT_DESTINATIONS
    )


def _is_allowed(name: bytes) -> bool:
    """Return whether a response of an agent may have the header, in lower case."""
    if name in _RESPONSE_HEADERS:
        return True
    return name.startswith(_RESPONSE_HEADER_PREFIXES) and not name.startswith(_PROXY_COMMANDS)


def _platform_cookies() -> set[str]:
    return {settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME}


def _scope_cookie(cookie: bytes, target: ProxyTarget) -> bytes:
    """Limit a cookie to this agent: to its host, or on the platform's origin to its path."""
    is_shared = _shares_origin(target)
    removed = (b"path", b"domain") if is_shared else (b"domain",)
    first, *rest = cookie.split(b";")
    other_attributes = [
        part for part in rest if part.partition(b"=")[0].strip().lower() not in removed
    ]
    path = [f"Path=/agents/{target.route.slug}".encode()] if is_shared else []
    return b"; ".join([first.strip(), *(part.strip() for part in other_attributes), *path])


def _split_message(message: dict[str, Any]) -> list[dict[str, Any]]:
    body = message.get("body") or b""
    if message["type"] != "http.request" or len(body) <= MAX_MESSAGE_BYTES:
        return [message]
    parts = [
        body[start : start + MAX_MESSAGE_BYTES] for start in range(0, len(body), MAX_MESSAGE_BYTES)
    ]
    has_more = bool(message.get("more_body"))
    return [
        {**message, "body": part, "more_body": has_more or number < len(parts)}
        for number, part in enumerate(parts, start=1)
    ]


def _message_size(message: dict[str, Any]) -> int:
    """The size of a message in bytes, as both ends count it."""
    parts = (message.get(name) for name in ("body", "bytes", "text"))
    return sum(len(part) for part in parts if part) + 64
