"""Rate limits of ASGI consumers, which the Django middleware does not cover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser

from apps.core.http.asgi import Application, Scope, session_key_of, user_of
from apps.core.http.middleware import error_json
from apps.core.http.paths import canonical
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.models import User
from apps.rate_limits.checks import check
from apps.rate_limits.counters import LimitReached, Usage
from apps.rate_limits.row_matching import is_counted

TRY_AGAIN_LATER = 1013
"""WebSocket close code (IANA registry of RFC 6455)."""


async def check_scope(scope: Scope) -> Usage | None:
    """Count the request or connection of an ASGI scope. Raises `LimitReached`.

    Key look-up and counting are synchronous and run in one thread call.
    """
    path = canonical(scope["path"])
    if not is_counted(path):
        return None
    return await in_thread(
        check,
        method=scope.get("method", "GET"),
        path=path,
        headers=_Headers(scope),
        remote=(scope.get("client") or ("",))[0],
        user=lambda: _session_user(scope),
    )


def limited(application: Application) -> Application:
    """Wrap an ASGI application of the platform API with rate limits."""

    async def handle(scope: Scope, receive: Any, send: Any) -> None:
        try:
            usage = await check_scope(scope)
        except LimitReached as error:
            await _reject(error, scope, receive, send)
            return
        limit_headers = {} if usage is None else usage.headers()
        await application(
            scope, receive, _with_headers(limit_headers, send) if limit_headers else send
        )

    return handle


def _with_headers(headers: Mapping[str, str], send: Any) -> Any:
    async def send_with_headers(message: dict[str, Any]) -> None:
        if message["type"] in {"http.response.start", "websocket.accept"}:
            message = {**message, "headers": [*message.get("headers", ()), *_encode(headers)]}
        await send(message)

    return send_with_headers


async def _reject(error: LimitReached, scope: Scope, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json"), *_encode(error.usage.headers())]
    body = dumps(error_json(canonical(scope["path"]), error))
    kind = "http"
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
            return
        kind = "websocket.http"
    start = {"type": f"{kind}.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": f"{kind}.response.body", "body": body})


def _encode(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def _session_user(scope: Scope) -> User | None:
    """Return the session's user, from the scope or the session cookie."""
    user: AbstractBaseUser | AnonymousUser | None = scope.get("user")
    if user is None and (key := session_key_of(scope)) is not None:
        user = user_of(key)
    return user if isinstance(user, User) and user.is_active else None


class _Headers(dict[str, str]):
    """A scope's headers, case-insensitive."""

    def __init__(self, scope: Scope) -> None:
        super().__init__((n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"])

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)
