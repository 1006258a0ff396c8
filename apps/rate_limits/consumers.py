"""The table, for what Django's handler does not answer: async code and Channels consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser

from apps.core.asgi import Application, Scope, session_key_of, user_of
from apps.core.json import dumps
from apps.core.middleware import error_json
from apps.core.paths import canonical
from apps.core.sync_bridge import in_thread
from apps.organizations.models import User
from apps.rate_limits.checks import check
from apps.rate_limits.counters import LimitReached, Usage
from apps.rate_limits.row_matching import is_counted

TRY_AGAIN_LATER = 1013
"""What a socket is closed with (RFC 6455's registry)."""


async def check_scope(scope: Scope) -> Usage | None:
    """Count the request or the connection of an ASGI scope; `LimitReached` when it is too many.

    One crossing to a thread: looking a key up and counting are sync code.
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
        user=lambda: _person(scope),
    )


def limited(application: Application) -> Application:
    """An ASGI application of the platform API under the table; pages' and agents' are outside."""

    async def handle(scope: Scope, receive: Any, send: Any) -> None:
        try:
            usage = await check_scope(scope)
        except LimitReached as error:
            await _refuse(error, scope, receive, send)
            return
        found = {} if usage is None else usage.headers()
        await application(scope, receive, _with_headers(found, send) if found else send)

    return handle


def _with_headers(found: Mapping[str, str], send: Any) -> Any:
    async def send_with_headers(message: dict[str, Any]) -> None:
        if message["type"] in {"http.response.start", "websocket.accept"}:
            message = {**message, "headers": [*message.get("headers", ()), *_raw(found)]}
        await send(message)

    return send_with_headers


async def _refuse(error: LimitReached, scope: Scope, receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"application/json"), *_raw(error.usage.headers())]
    body = dumps(error_json(canonical(scope["path"]), error))
    kind = "http"
    if scope["type"] == "websocket":
        await receive()  # the connection's opening, which is answered
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
            return
        kind = "websocket.http"
    start = {"type": f"{kind}.response.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": f"{kind}.response.body", "body": body})


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def _person(scope: Scope) -> User | None:
    """Of the session: as a socket's scope has it, or looked up."""
    user: AbstractBaseUser | AnonymousUser | None = scope.get("user")
    if user is None and (key := session_key_of(scope)) is not None:
        user = user_of(key)
    return user if isinstance(user, User) and user.is_active else None


class _Headers(dict[str, str]):
    """A scope's headers, found without regard to case."""

    def __init__(self, scope: Scope) -> None:
        super().__init__((n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"])

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)
