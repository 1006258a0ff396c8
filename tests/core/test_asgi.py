import asyncio
import logging

import pytest
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test import Client

from apps.core.errors import BadRequest
from apps.core.http.asgi import (
    AsgiRouter,
    merge_repeated_headers,
    websocket_application,
    with_agent_path,
    with_user,
)
from apps.core.observability.logs import WebSocketRefusalFilter
from tests.factories.organizations import UserFactory


def connect_and_read_users(*cookies):
    """Connect several sockets concurrently and return the user of each."""
    users = []

    async def application(scope, receive, send):
        users.append(scope["user"])

    async def connect(cookie):
        await with_user(application)({"headers": [(b"cookie", cookie.encode())]}, None, None)

    async def connect_all():
        await asyncio.gather(*map(connect, cookies))

    asyncio.run(connect_all())
    return users


@pytest.fixture
def user(transactional_db):
    return UserFactory()


@pytest.fixture
def cookie(user):
    browser = Client()
    browser.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"


def test_websocket_scope_has_the_signed_in_user(user, cookie):
    assert connect_and_read_users(f"a=b; {cookie}") == [user]
    assert (
        connect_and_read_users("", "a=b", f"{settings.SESSION_COOKIE_NAME}=made-up")
        == [AnonymousUser()] * 3
    )


def test_websocket_opens_after_a_database_restart(user, cookie):
    many = [cookie] * 2 * settings.WEB_THREADS
    assert connect_and_read_users(*many) == [user] * len(many)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid, 10_000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    assert connect_and_read_users(*many) == [user] * len(many)


def test_agent_domain_host_maps_to_the_agent_path(settings):
    settings.AGENT_DOMAIN = "agents.example"
    scope = {"path": "/threads", "headers": [(b"host", b"Sample.agents.example:443")]}

    assert with_agent_path(scope)["path"] == "/agents/sample/threads"
    assert with_agent_path({**scope, "headers": [(b"host", b"slipway.example")]})["path"] == (
        "/threads"
    )


@pytest.mark.parametrize(
    "name",
    [
        *(b"x-api-key", b"authorization", b"x-tenant-id", b"x-organization-id", b"content-type"),
        *(b"x-user-id", b"x-auth-scheme", b"content-encoding", b"last-event-id"),
        *(b"langsmith-project", b"langsmith-agent-id", b"langsmith-agent-environment"),
        *(b"origin", b"x-csrftoken", b"host"),
    ],
)
def test_header_sent_twice_with_one_value_is_read_once(name):
    headers = [(name, b"value"), (b"cookie", b"a=1"), (name, b"value"[:]), (b"cookie", b"b=2")]

    merged = merge_repeated_headers({"headers": headers})["headers"]

    assert merged == [(name, b"value"), (b"cookie", b"a=1"), (b"cookie", b"b=2")]


@pytest.mark.parametrize("name", ["x-api-key", "host"])
def test_header_sent_twice_with_different_values_is_rejected(name):
    headers = [(name.encode(), b"one"), (name.encode(), b"two")]

    with pytest.raises(BadRequest, match=f"two different {name} headers"):
        merge_repeated_headers({"headers": headers})


@pytest.mark.parametrize("path", ["/api/v1/info", "/agents/any/threads/search"])
def test_request_with_two_api_keys_gets_400_before_any_application(path):
    sent = []

    async def send(message):
        sent.append(message)

    router = AsgiRouter(agents=None, websocket=None, fallback=None)
    scope = {
        "type": "http",
        "path": path,
        "headers": [(b"x-api-key", b"one"), (b"x-api-key", b"two")],
    }
    asyncio.run(router(scope, None, send))

    assert sent[0]["status"] == 400
    assert b"two different x-api-key headers" in sent[1]["body"]


@pytest.mark.parametrize("extensions", [{"websocket.http.response": {}}, {}])
def test_a_websocket_without_a_route_is_refused(extensions):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "websocket", "path": "/ws/nothing", "headers": [], "extensions": extensions}
    asyncio.run(websocket_application([])(scope, None, send))

    if extensions:
        assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 404)
        assert b'"code":"not_found"' in sent[1]["body"]
    else:
        assert sent == [{"type": "websocket.close", "code": 4404}]


def test_only_the_error_of_a_refused_websocket_is_dropped_from_the_log():
    def is_logged(name, message):
        record = logging.LogRecord(name, logging.ERROR, "", 1, message, None, None)
        return WebSocketRefusalFilter().filter(record)

    refused = "ASGI callable returned without completing handshake."
    assert not is_logged("uvicorn.error", refused)
    assert is_logged("uvicorn.error", "Exception in ASGI application\n")
    assert is_logged("apps.core", refused)
