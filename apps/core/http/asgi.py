"""The outermost ASGI application, and the application of WebSockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, parse_cookie
from django.urls import URLPattern, re_path

from apps.core import errors
from apps.core.http.body_reader import AsgiScope
from apps.core.http.wsgi_bridge import send_error
from apps.core.json import dumps
from apps.core.request_context import RequestContext, enter
from apps.core.sync_bridge import in_thread

Application = Callable[[AsgiScope, Any, Any], Awaitable[None]]

AGENT_PREFIX = "/agents/"
_SINGLE_VALUE_HEADERS = frozenset({
    b"authorization", b"content-encoding", b"content-type", b"host", b"last-event-id",
    b"langsmith-agent-environment", b"langsmith-agent-id", b"langsmith-project", b"origin",
    b"x-api-key", b"x-auth-scheme", b"x-csrftoken", b"x-organization-id", b"x-tenant-id",
    b"x-user-id",
})  # fmt: skip


class AsgiRouter:
    """Passes paths of agents to `agents`, other WebSockets to `websocket`, HTTP to `fallback`.

    `on_startup` is called on the serving loop before the first request.
    """

    def __init__(
        self,
        *,
        agents: Application,
        websocket: Application,
        fallback: Application,
        on_startup: Callable[[], None] = lambda: None,
    ) -> None:
        self._agents = agents
        self._websocket = websocket
        self._fallback = fallback
        self._on_startup = on_startup

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await run_lifespan(receive, send, self._on_startup)
            return
        try:
            scope = merge_repeated_headers(scope)
        except errors.BadRequest as error:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 4400})
            else:
                await send_error(send, error)
            return
        scope = with_agent_path(scope)
        if scope["path"].startswith(AGENT_PREFIX):
            await self._agents(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._fallback(scope, receive, send)


def websocket_application(websocket_routes: Sequence[URLPattern]) -> Application:
    """Route WebSockets of allowed origins."""
    # Channels raises an error for a path without a route.
    unknown = re_path("", _reject_unknown_path)  # type: ignore[arg-type]  # an ASGI application
    routes = [*websocket_routes, unknown]
    application: Application = AllowedHostsOriginValidator(with_user(URLRouter(routes)))

    async def serve(scope: AsgiScope, receive: Any, send: Any) -> None:
        enter(RequestContext((scope.get("client") or (None,))[0]))
        await application(scope, receive, send)

    return serve


async def _reject_unknown_path(scope: AsgiScope, receive: Any, send: Any) -> None:
    """Answer 404; without the extension for HTTP responses, close the connection."""
    error = errors.NotFound()
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 4000 + error.status})
        return
    headers = [(b"content-type", b"application/json")]
    start = {"type": "websocket.http.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": dumps(error.as_json())})


def with_user(application: Application) -> Application:
    """Add the signed-in user to the scope as `scope["user"]`.

    Channels' own middleware reads sessions on threads that do not check their connections, so each
    would fail once after a restart of the database.
    """

    async def handle(scope: AsgiScope, receive: Any, send: Any) -> None:
        key = get_session_key(scope)
        user = await in_thread(load_user, key) if key else AnonymousUser()
        await application({**scope, "user": user}, receive, send)

    return handle


def get_session_key(scope: AsgiScope) -> str | None:
    """Return the key of the browser session in the request's cookies."""
    cookies = next((v for n, v in scope["headers"] if n == b"cookie"), b"").decode("latin-1")
    return parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME)


def load_user(session_key: str) -> AbstractBaseUser | AnonymousUser:
    """Return the user of a browser session. Queries the database; call it in a thread."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return get_user(request)


def merge_repeated_headers(scope: AsgiScope) -> AsgiScope:
    """Return the scope with each header that has one value once.

    Older `langsmith` clients send `X-API-Key` twice. Joined by a comma, as HTTP joins lists, the
    key would be invalid. Raises `BadRequest` if the values of such a header differ.
    """
    headers = scope["headers"]
    if len({name for name, _ in headers}) == len(headers):
        return scope
    values: dict[bytes, bytes] = {}
    merged = []
    for name, value in headers:
        if name in _SINGLE_VALUE_HEADERS:
            if name in values and values[name] != value:
                text = f"The request has two different {name.decode()} headers; send one."
                raise errors.BadRequest(text)
            if name in values:
                continue
            values[name] = value
        merged.append((name, value))
    return {**scope, "headers": merged}


def with_agent_path(scope: AsgiScope) -> AsgiScope:
    """Rewrite `<slug>.<AGENT_DOMAIN>/x` to `/agents/<slug>/x`; leave other hosts unchanged."""
    domain = settings.AGENT_DOMAIN
    if not domain or "agent_root" in scope:
        return scope
    host = next((v for n, v in scope["headers"] if n == b"host"), b"").decode("latin-1")
    slug, _, host_domain = host.split(":", 1)[0].lower().partition(".")
    if host_domain != domain.lower() or not slug:
        return scope
    return {**scope, "path": f"/agents/{slug}{scope['path']}", "agent_root": f"/agents/{slug}"}


async def run_lifespan(
    receive: Any,
    send: Any,
    on_startup: Callable[[], None],
    on_shutdown: Callable[[], None] = lambda: None,
) -> None:
    """Call the functions at the start and at the end of the process, on the serving loop."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            on_startup()
        else:
            on_shutdown()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
