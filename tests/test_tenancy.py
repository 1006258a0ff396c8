"""The wall: every route, walked by callers who must not get through.

Routes join by themselves. One with a parameter that tests/other_tenant.py does not know, or
one that is open to all and not listed in `OPEN`, fails until somebody says what it exposes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from apps.agent_server.endpoints.routes import ENDPOINTS
from apps.api_keys.services import issue_key
from apps.organizations.models import Workspace
from tests.factories.api_keys import key_for
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)
from tests.other_tenant import PARAMETER, Foreign

pytestmark = pytest.mark.django_db

METHODS = ["get", "post", "put", "patch", "delete"]
# Answers that give nothing away, and, for those who know no key, a way to sign in.
HIDDEN = {404, 405}
SHUT = {302, 401, 403, 404, 405}
# What an ingest-only key is for.
INGEST = {
    "/runs", "/runs/batch", "/runs/multipart", "/runs/<uuid:run_id>",
    "/otel/v1/traces", "/otel/v1/claude_code",
    "/auth",  # any key may ask whether it is good, and whose it is
}  # fmt: skip

# Open to everybody, and why that is meant.
OPEN = {
    "/healthz": "for load balancers",
    "/readyz": "for load balancers",
    "/sign-in": "the door",
    "/sign-up": "the door, where the operator opens it",
    "/account/inactive": "says that an account is closed, not whose",
    "/account/verify": "says where to look for the mail",
    "/account/verify/<str:key>": "the link of a mail: whoever has it",
    "/account/password/reset": "asks for an address and says nothing about it",
    "/account/password/reset/sent": "says where to look for the mail",
    "/account/password/reset/done": "leads to the door",
    "/account/password/reset/<word:uidb36>-<str:key>": "the link of a mail: whoever has it",
    "/account/oidc/<str:provider_id>/callback": "the way back from an identity provider",
    "/account/oidc-cancelled": "leads to the door",
    "/account/oidc-failed": "leads to the door",
    "/info": "clients ask before they have a key",
    "/info/health": "for load balancers",
    "/ok": "for load balancers",
    "/openapi.json": "the same for everybody: it shows no row",
    "/public/schemas/v1/message.json": "the same for everybody: it shows no row",
    "/public/schemas/v1/tooldef.json": "the same for everybody: it shows no row",
    "/auth/public": "how to sign in: it shows no row",
    "/v1/beacon/verify": "agent servers elsewhere call it; nothing is kept",
    "/v1/beacon/ingest-traces": "agent servers elsewhere call it; nothing is kept",
    "/v1/beacon/usage-snapshot": "agent servers elsewhere call it; nothing is kept",
    "/v1/beacon/v1/metrics": "agent servers elsewhere call it; nothing is kept",
    "/v1/beacon/v1/traces": "agent servers elsewhere call it; nothing is kept",
    "/agents/<slug:slug>": "for load balancers",
    "/agents/<slug:slug>/ok": "for load balancers",
    "/agents/<slug:slug>/docs": "the same for every agent: it shows no row",
    "/agents/<slug:slug>/openapi.json": "the same for every agent: it shows no row",
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


def agent_routes() -> list[tuple[str, str]]:
    """Method and path of each endpoint of agents."""
    return [(endpoint.method.lower(), f"/{endpoint.route}") for endpoint in ENDPOINTS]


ALL = sorted({*routes(get_resolver()), *(path for _, path in agent_routes())} - set(OPEN))


@pytest.fixture
def foreign() -> Foreign:
    return Foreign.make()


@pytest.fixture
def outsider() -> Workspace:
    """A workspace of somebody who may do everything, there and in their organization."""
    workspace = WorkspaceFactory()
    owner = MembershipFactory(organization=workspace.organization, role="owner").user
    return WorkspaceMembershipFactory(workspace=workspace, user=owner, role="admin").workspace


def everywhere(workspace: Workspace) -> dict[str, str]:
    """A key for the whole organization, in that workspace."""
    _, secret = issue_key(organization=workspace.organization, name="test", scopes=["admin"])
    return {"X-Api-Key": secret, "X-Tenant-Id": str(workspace.pk)}


def walk(
    foreign: Foreign, client: Client, allowed: set[int], wanted: list[str], **headers: str
) -> list[str]:
    """What answered otherwise than it may, or with a byte of a foreign row; `[]` when all is well.

    Ids in an answer are no leak: the caller sent them.
    """
    found = []
    for route in wanted:
        path = foreign.path(route)
        for method in METHODS:
            response = getattr(client, method)(
                path,
                data=None if method == "get" else "{}",
                headers=headers,
                **({} if method == "get" else {"content_type": "application/json"}),
            )
            said = response.content
            leaks = b"sentinel" in said.replace(path.encode(), b"")
            if response.status_code not in allowed or leaks or not _is_well_shaped(response):
                found.append(f"{method} {route}: {response.status_code} {said[:200]!r}")
    return found


def _is_well_shaped(response: Any) -> bool:
    """Whether a refusal in JSON has the one error shape."""
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    if response.status_code < 400 or not is_json or not response.content:
        return True
    return set(json.loads(response.content)) - {"error"} == {"detail", "code", "errors"}


def test_each_parameter_of_a_route_is_known(foreign):
    names = {name for route in ALL for name in PARAMETER.findall(route)}

    assert names - set(foreign.values) == set()


def test_an_outsider_with_a_key_finds_nothing(client, foreign, outsider):
    pages = ("/o/", "/account/")  # a key opens none: they lead to the sign-in page
    wanted = [route for route in ALL if PARAMETER.search(route) and not route.startswith(pages)]

    # A bare update of an unknown run is kept for the run, in the caller's own workspace.
    wanted.remove("/runs/<uuid:run_id>")

    found = walk(foreign, client, HIDDEN, wanted, **everywhere(outsider))

    assert found == []


def test_an_outsider_who_is_signed_in_finds_nothing(client, foreign, outsider):
    client.force_login(outsider.memberships.get().user)

    found = walk(
        foreign, client, HIDDEN | {401}, [route for route in ALL if PARAMETER.search(route)]
    )

    assert found == []


def test_nobody_gets_in_without_a_key_or_a_session(client, foreign):
    assert walk(foreign, client, SHUT, ALL) == []


def test_nobody_gets_in_with_a_wrong_key(client, foreign):
    assert walk(foreign, client, SHUT, ALL, **{"X-Api-Key": "slip_wrong"}) == []


def test_an_ingest_key_reads_nothing(client, foreign):
    key = key_for(foreign.workspace, "ingest")

    assert walk(foreign, client, SHUT, sorted(set(ALL) - INGEST), **{"X-Api-Key": key}) == []
    assert client.get("/runs", headers={"X-Api-Key": key}).status_code == 405
    run = foreign.path("/runs/<uuid:run_id>")
    assert client.get(run, headers={"X-Api-Key": key}).status_code == 403


def test_no_list_shows_a_strangers_row(client, foreign, outsider):
    """The twin: what an outsider may read, in a place of their own, has no foreign byte."""
    key = key_for(outsider)
    client.force_login(outsider.memberships.get().user)
    own = f"/o/{outsider.pk}"
    pages = [route.replace("/o/<uuid:workspace_id>", own) for route in ALL if "/o/" in route]
    lists = [route for route in (*pages, *ALL) if not PARAMETER.search(route)]

    for path in lists:
        for response in (
            client.get(path, headers={"X-Api-Key": key}),
            client.post(path, "{}", content_type="application/json", headers={"X-Api-Key": key}),
        ):
            assert b"sentinel" not in response.content, path
            assert str(foreign.workspace.pk).encode() not in response.content, path
            assert response.status_code < 500, path


@pytest.mark.parametrize("path", ["/admin/", "/admin/organizations/user/"])
def test_the_admin_site_is_for_operators(client, path):
    client.force_login(UserFactory())

    assert client.get(path).status_code == 302


def test_a_browser_without_a_csrf_token_changes_nothing(foreign):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(UserFactory())

    assert {
        route: status
        for route in ALL
        if (status := browser.post(foreign.path(route), {"name": "x"}).status_code) not in SHUT
    } == {}
