import asyncio

import pytest
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.test import Client

from apps.core.http.asgi import with_agent_path, with_user
from tests.factories.organizations import UserFactory


def users_of(*cookies):
    """Who each of several sockets, opened at once, belongs to."""
    seen = []

    async def application(scope, receive, send):
        seen.append(scope["user"])

    async def connect(cookie):
        await with_user(application)({"headers": [(b"cookie", cookie.encode())]}, None, None)

    async def all_at_once():
        await asyncio.gather(*map(connect, cookies))

    asyncio.run(all_at_once())
    return seen


@pytest.fixture
def person(transactional_db):
    return UserFactory()


@pytest.fixture
def cookie(person):
    browser = Client()
    browser.force_login(person)
    return f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"


def test_websocket_scope_has_the_signed_in_user(person, cookie):
    assert users_of(f"a=b; {cookie}") == [person]
    assert users_of("", "a=b", f"{settings.SESSION_COOKIE_NAME}=made-up") == [AnonymousUser()] * 3


def test_websocket_opens_after_a_database_restart(person, cookie):
    many = [cookie] * 2 * settings.WEB_THREADS
    assert users_of(*many) == [person] * len(many)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid, 10_000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    assert users_of(*many) == [person] * len(many)


def test_agent_domain_host_maps_to_the_agent_path(settings):
    settings.AGENT_DOMAIN = "agents.example"
    scope = {"path": "/threads", "headers": [(b"host", b"Sample.agents.example:443")]}

    assert with_agent_path(scope)["path"] == "/agents/sample/threads"
    assert with_agent_path({**scope, "headers": [(b"host", b"slipway.example")]})["path"] == (
        "/threads"
    )
