"""The wall: every route, walked by callers who must not get through.

Routes join by themselves. One with a parameter that is not in `FOREIGN`, or one that is open to
all and not listed in `OPEN`, fails until somebody says what it exposes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from config.asgi import application
from tests.factories.api_keys import key_for
from tests.factories.organizations import UserFactory, WorkspaceMembershipFactory
from tests.foreign import FOREIGN

pytestmark = pytest.mark.django_db

PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
METHODS = ["get", "post", "put", "patch", "delete"]
# Answers that give nothing away, and, for those who know no key, a way to sign in.
HIDDEN = {404, 405}
SHUT = {302, 401, 403, 404, 405}

# Open to everybody, and why that is meant.
OPEN = {
    "/healthz": "for load balancers",
    "/readyz": "for load balancers",
    "/sign-in": "the door",
    "/info": "clients ask before they have a key",
    "/info/health": "for load balancers",
    "/ok": "for load balancers",
    "/agents/<slug:slug>/ok": "for load balancers",
}


def routes(resolver: URLResolver, prefix: str = "/") -> Iterator[str]:
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}"
        if path.startswith("/admin/"):
            continue  # Django's own door: staff only, walked below as one
        if isinstance(entry, URLResolver):
            yield from routes(entry, path)
        else:
            assert isinstance(entry, URLPattern)
            yield path.replace("^", "").replace("$", "")


def stream_routes() -> list[tuple[str, str]]:
    """Method and path of each route that a consumer answers."""
    return [
        (method.lower(), f"/{route.pattern}")
        for route in application.http_routes
        for method in sorted(route.default_args["methods"])
    ]


ALL = sorted({*routes(get_resolver()), *(path for _, path in stream_routes())})


def filled(route: str, values: dict[str, Any]) -> str:
    return PARAMETER.sub(lambda match: str(values[match[1]]), route)


@pytest.fixture
def foreign() -> dict[str, Any]:
    """A real row of somebody else for each parameter."""
    return {name: make() for name, make in FOREIGN.items()}


@pytest.fixture
def outsider_key() -> str:
    return key_for(WorkspaceMembershipFactory(role="admin").workspace)


def test_each_parameter_of_a_route_is_known():
    unknown = {name for route in ALL for name in PARAMETER.findall(route)} - set(FOREIGN)

    assert unknown == set()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("route", [route for route in ALL if PARAMETER.search(route)])
def test_an_outsider_with_a_key_finds_nothing(client, foreign, outsider_key, route, method):
    if route in OPEN:
        pytest.skip(OPEN[route])

    response = getattr(client, method)(
        filled(route, foreign),
        data="{}",
        content_type="application/json",
        headers={"X-Api-Key": outsider_key},
    )

    assert response.status_code in HIDDEN | ({302} if route.startswith("/o/") else set())
    assert_nothing_leaks(response, foreign)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("route", [route for route in ALL if PARAMETER.search(route)])
def test_an_outsider_who_is_signed_in_finds_nothing(client, foreign, route, method):
    if route in OPEN:
        pytest.skip(OPEN[route])
    client.force_login(WorkspaceMembershipFactory(role="admin").user)

    response = getattr(client, method)(
        filled(route, foreign), data="{}", content_type="application/json"
    )

    assert response.status_code in HIDDEN | {401}
    assert_nothing_leaks(response, foreign)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("route", ALL)
def test_nobody_gets_in_without_a_key_or_a_session(client, foreign, route, method):
    if route in OPEN:
        pytest.skip(OPEN[route])

    response = getattr(client, method)(
        filled(route, foreign), data="{}", content_type="application/json"
    )

    assert response.status_code in SHUT
    if response.status_code == 302:
        assert response.headers["Location"].startswith("/sign-in")
    assert_nothing_leaks(response, foreign)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("route", ALL)
def test_an_ingest_key_reads_nothing(client, foreign, route, method):
    if route in OPEN or route in {"/runs", "/runs/batch", "/runs/multipart", "/otel/v1/traces"}:
        pytest.skip("open, or what the key is for")
    key = key_for(WorkspaceMembershipFactory().workspace, "ingest")

    response = getattr(client, method)(
        filled(route, foreign),
        data="{}",
        content_type="application/json",
        headers={"X-Api-Key": key},
    )

    own_run = route == "/runs/<uuid:run_id>" and method == "patch"
    assert response.status_code in SHUT | ({202} if own_run else set())


@pytest.mark.parametrize("path", ["/admin/", "/admin/organizations/user/"])
def test_the_admin_site_is_for_operators(client, path):
    client.force_login(UserFactory())

    assert client.get(path).status_code == 302


def assert_nothing_leaks(response: Any, foreign: dict[str, Any]) -> None:
    """No byte of a foreign row's content comes back; ids are what the outsider sent himself."""
    assert b"sentinel" not in response.content
    if response.headers.get("Content-Type") == "application/json" and response.content:
        body = json.loads(response.content)
        if response.status_code >= 400:
            assert set(body) == {"detail", "code", "errors"}


def test_a_browser_without_a_csrf_token_changes_nothing(foreign):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(UserFactory())

    for route in ALL:
        if route in OPEN:
            continue
        response = browser.post(
            filled(route, foreign), {"name": "x"}, headers={"X-Tenant-Id": str(UUID(int=0))}
        )
        assert response.status_code in SHUT, route
