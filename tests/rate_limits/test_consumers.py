"""HTTP and WebSocket consumers of the platform API are limited by the same table."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client
from django.urls import path

from apps.core.http.asgi import AsgiRouter, websocket_application
from apps.core.sync_bridge import thread_pool
from apps.rate_limits import consumers
from apps.rate_limits.consumers import limited
from config.asgi import application as platform
from tests.factories.api_keys import key_for
from tests.factories.organizations import UserFactory, WorkspaceFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits")]


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answered"})


async def _converse(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": 1000})


async def _nobody(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("matched nothing")


FRONT = AsgiRouter(
    agents=_nobody,
    websocket=websocket_application(
        [path("runs/stats", _converse), path("o/live", _converse)], limited
    ),
    fallback=limited(_answer),
)


@pytest.fixture(autouse=True)
def _threads_let_go():
    yield
    from django.db import connections

    [*thread_pool().map(lambda _: connections.close_all(), range(settings.WEB_THREADS * 4))]


def scope_of(kind: str, address: str = "/runs/stats", **headers: str) -> dict[str, Any]:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {
        "type": kind,
        "path": address,
        "query_string": b"",
        "headers": [(b"host", b"testserver"), (b"origin", b"http://testserver"), *raw],
        "client": ("192.0.2.1", 1),
    }
    if kind == "http":
        scope["method"] = "POST"
    return scope


def messages(scope: dict[str, Any], count: int) -> list[dict[str, Any]]:
    async def talk() -> list[dict[str, Any]]:
        communicator = ApplicationCommunicator(FRONT, scope)
        if scope["type"] == "websocket":
            await communicator.send_input({"type": "websocket.connect"})
        return [await communicator.receive_output(10) for _ in range(count)]

    return asyncio.run(talk())


def header(message: dict[str, Any], name: bytes) -> bytes:
    return dict(message["headers"])[name]


def test_http_consumer_is_counted_and_rejected():
    scope = scope_of("http", x_api_key=key_for(WorkspaceFactory()))

    (start, body), (refusal, payload) = messages(scope, 2), messages(scope, 2)

    assert (start["status"], body["body"]) == (200, b"answered")
    assert header(start, b"x-ratelimit-remaining") == b"0"
    assert refusal["status"] == 429
    assert header(refusal, b"x-ratelimit-category") == b"Stats"
    assert int(header(refusal, b"retry-after")) >= 1
    assert json.loads(payload["body"])["code"] == "rate_limited"


def test_socket_is_counted_when_it_opens():
    key = key_for(WorkspaceFactory())
    can_tell = {"extensions": {"websocket.http.response": {}}}

    [accepted] = messages(scope_of("websocket", x_api_key=key), 1)
    [closed] = messages(scope_of("websocket", x_api_key=key), 1)
    [start_message, payload] = messages(scope_of("websocket", x_api_key=key) | can_tell, 2)

    assert accepted["type"] == "websocket.accept"
    assert header(accepted, b"x-ratelimit-limit") == b"1"
    assert (closed["type"], closed["code"]) == ("websocket.close", 1013)
    assert (start_message["type"], start_message["status"]) == (
        "websocket.http.response.start",
        429,
    )
    assert json.loads(payload["body"])["detail"].startswith(
        "Rate limit exceeded for Stats: at most 1 requests"
    )


def test_consumers_count_on_the_sessions_user():
    user, client = UserFactory(), Client()
    client.force_login(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"

    for kind in ("http", "websocket"):
        [first, *_] = messages(scope_of(kind, cookie=cookie), 1)
        assert header(first, b"x-ratelimit-category") == b"Default (User)"


def test_sockets_of_pages_are_not_limited():
    for _ in range(3):
        [accepted] = messages(scope_of("websocket", "/o/live"), 1)
        assert accepted["type"] == "websocket.accept"
        assert accepted.get("headers", []) == []


def test_websockets_of_the_platform_are_limited(monkeypatch):
    class Checked(Exception):
        """The limits were checked."""

    async def check_scope(scope: Any) -> None:
        raise Checked

    monkeypatch.setattr(consumers, "check_scope", check_scope)
    scope = scope_of("websocket", "/o/live", origin=settings.BASE_URL)

    with pytest.raises(Checked):
        asyncio.run(platform(scope, None, None))  # type: ignore[arg-type]
