"""The outermost ASGI application: routes connections to consumers or the WSGI bridge."""

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
from django.urls import URLPattern

from apps.core.http.routing import Routes
from apps.core.request_context import RequestContext, enter
from apps.core.sync_bridge import in_thread

Scope = dict[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]


class AsgiRouter:
    """Routes HTTP streams and WebSockets to consumers, everything else to `fallback`.

    `http_routes` are `path()`s with a `methods` argument, so that other methods of the same path
    reach their DRF views. `middleware` wraps each consumer and may refuse a connection.
    `on_startup` is called on the serving loop before the first request.
    """

    def __init__(
        self,
        *,
        http_routes: Sequence[URLPattern],
        websocket_routes: Sequence[URLPattern],
        fallback: Application,
        middleware: Callable[[Application], Application] = lambda application: application,
        on_startup: Callable[[], None] = lambda: None,
    ) -> None:
        self.http_routes = http_routes
        self._by_segments = Routes(http_routes)
        self.on_startup = on_startup
        self.fallback = fallback
        sockets = middleware(URLRouter([*websocket_routes]))
        self.websocket = AllowedHostsOriginValidator(with_user(sockets))
        self._serve_matched = middleware(_call_matched)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self.on_startup)
            return
        enter(RequestContext((scope.get("client") or (None,))[0]))
        scope = with_agent_path(scope)
        if scope["type"] == "websocket":
            await self.websocket(scope, receive, send)
            return
        match = self._by_segments.find(scope["path"].lstrip("/"), scope["method"])
        if match is None:
            await self.fallback(scope, receive, send)
            return
        scope = {**scope, "url_route": {"args": (), "kwargs": match.kwargs, "route": match.route}}
        await self._serve_matched(scope, receive, send)


async def _call_matched(scope: Scope, receive: Any, send: Any) -> None:
    await scope["url_route"]["route"].callback(scope, receive, send)


def with_user(application: Application) -> Application:
    """Add the signed-in user to the scope as `scope["user"]`.

    Channels' own middleware reads sessions on threads that do not check their connections, so each
    would fail once after a restart of the database.
    """

    async def handle(scope: Scope, receive: Any, send: Any) -> None:
        key = session_key_of(scope)
        user = await in_thread(user_of, key) if key else AnonymousUser()
        await application({**scope, "user": user}, receive, send)

    return handle


def session_key_of(scope: Scope) -> str | None:
    """Return the key of the browser session in the request's cookies."""
    cookies = next((v for n, v in scope["headers"] if n == b"cookie"), b"").decode("latin-1")
    return parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME)


def user_of(session_key: str) -> AbstractBaseUser | AnonymousUser:
    """Return the user of a browser session. Queries the database; call it in a thread."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return get_user(request)


def with_agent_path(scope: Scope) -> Scope:
    """Rewrite `<slug>.<AGENT_DOMAIN>/x` to `/agents/<slug>/x`; leave other hosts unchanged."""
    domain = settings.AGENT_DOMAIN
    if not domain or "agent_root" in scope:
        return scope
    host = next((v for n, v in scope["headers"] if n == b"host"), b"").decode("latin-1")
    slug, _, rest = host.split(":", 1)[0].lower().partition(".")
    if rest != domain.lower() or not slug:
        return scope
    return {**scope, "path": f"/agents/{slug}{scope['path']}", "agent_root": f"/agents/{slug}"}


async def _lifespan(receive: Any, send: Any, on_startup: Callable[[], None]) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            on_startup()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
