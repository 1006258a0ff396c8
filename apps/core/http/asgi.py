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
from django.urls import URLPattern

from apps.core.request_context import RequestContext, enter
from apps.core.sync_bridge import in_thread

Scope = dict[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]


AGENT_PREFIX = "/agents/"


class AsgiRouter:
    """Passes paths of agents to `agents`, other WebSockets to `websocket`, the rest to `fallback`.

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

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send, self._on_startup)
            return
        scope = with_agent_path(scope)
        if scope["path"].startswith(AGENT_PREFIX):
            await self._agents(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._fallback(scope, receive, send)


def websocket_application(
    websocket_routes: Sequence[URLPattern],
    middleware: Callable[[Application], Application] = lambda application: application,
) -> Application:
    """Route WebSockets of allowed origins; `middleware` may refuse a connection."""
    application: Application = AllowedHostsOriginValidator(
        with_user(middleware(URLRouter([*websocket_routes])))
    )

    async def serve(scope: Scope, receive: Any, send: Any) -> None:
        enter(RequestContext((scope.get("client") or (None,))[0]))
        await application(scope, receive, send)

    return serve


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
