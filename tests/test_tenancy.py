"""Tenant isolation: every route, requested by callers without access.

New routes are included automatically. A route with a parameter that tests/other_tenant.py does not
know, or a public route that is not in `OPEN`, fails until it is registered there.
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
from tests.audit.decisions import METHOD_INDEPENDENT, load_decisions
from tests.factories.api_keys import key_for
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)
from tests.methods import CHANGES
from tests.other_tenant import PARAMETER, OtherTenant

pytestmark = [pytest.mark.django_db, pytest.mark.exhaustive]

# Statuses that reveal nothing; without credentials also a redirect to the sign-in page.
NOT_FOUND_STATUSES = {404, 405}
REFUSED_STATUSES = {302, 401, 403, 404, 405}
# Routes for ingest-only keys.
INGEST = {
    "/runs", "/runs/batch", "/runs/multipart", "/runs/<uuid:run_id>",
    "/otel/v1/traces", "/otel/v1/claude_code", "/otel/v1/metrics", "/otel/v1/logs",
    "/auth",  # any key may check its validity and owner
}  # fmt: skip

# Public routes, with the reason.
OPEN = {
    "/healthz": "for load balancers",
    "/readyz": "for load balancers",
    "/sign-in": "the sign-in page",
    "/sign-up": "the sign-up page, where the operator allows it",
    "/account/inactive": "says that an account is closed, without its name",
    "/account/verify": "asks the user to read their mail",
    "/account/verify/<str:key>": "the link in a mail is the credential",
    "/account/password/reset": "asks for an address and reveals nothing about it",
    "/account/password/reset/sent": "asks the user to read their mail",
    "/account/password/reset/done": "leads to the sign-in page",
    "/account/password/reset/<word:uidb36>-<str:key>": "the link in a mail is the credential",
    "/account/oidc/<str:provider_id>/callback": "the redirect from an identity provider",
    "/account/oidc-cancelled": "leads to the sign-in page",
    "/account/oidc-failed": "leads to the sign-in page",
    "/.well-known/oauth-authorization-server": "addresses of the token routes: it shows no row",
    "/.well-known/oauth-authorization-server/api": "addresses of the token routes: no row",
    "/.well-known/oauth-protected-resource": "addresses of the token routes: it shows no row",
    "/.well-known/oauth-protected-resource/mcp": "addresses of the token routes: no row",
    "/.well-known/oauth-protected-resource/agents/<slug:slug>/mcp": "where to sign in: no row",
    "/agents/<slug:slug>/.well-known/oauth-protected-resource": "where to sign in: no row",
    "/oauth/device/code": "clients start a sign-in, which a user has to approve",
    "/oauth/register": "the id of a client is its signed metadata: it reaches no row",
    "/oauth/token": "the code or the refresh token in the body is the credential",
    "/info": "clients request it before they have a key",
    "/info/health": "for load balancers",
    "/ok": "for load balancers",
    "/openapi.json": "static: it shows no row",
    "/llms.txt": "static: the overview of the documentation",
    "/SKILL.md": "static: a page of the documentation",
    "/docs": "leads to the overview of the documentation",
    "/docs/<slug:name>.md": "static: the pages of the documentation that are listed",
    "/public/schemas/v1/message.json": "static: it shows no row",
    "/public/schemas/v1/tooldef.json": "static: it shows no row",
    "/auth/public": "sign-in methods: it shows no row",
    "/v1/beacon/verify": "agent servers elsewhere call it; nothing is stored",
    "/v1/beacon/ingest-traces": "agent servers elsewhere call it; nothing is stored",
    "/v1/beacon/usage-snapshot": "agent servers elsewhere call it; nothing is stored",
    "/v1/beacon/v1/metrics": "agent servers elsewhere call it; nothing is stored",
    "/v1/beacon/v1/traces": "agent servers elsewhere call it; nothing is stored",
    "/agents/<slug:slug>": "for load balancers",
    "/agents/<slug:slug>/ok": "for load balancers",
    "/agents/<slug:slug>/docs": "the same for every agent: it shows no row",
    "/agents/<slug:slug>/openapi.json": "the same for every agent: it shows no row",
}


def list_routes(resolver: URLResolver, prefix: str = "/") -> Iterator[str]:
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}"
        if path.startswith("/admin/"):
            continue  # Django's admin site: for staff only, tested below
        if isinstance(entry, URLResolver):
            yield from list_routes(entry, path)
        else:
            assert isinstance(entry, URLPattern)
            yield path.replace("^", "").replace("$", "")


def agent_routes() -> list[tuple[str, str]]:
    """Method and path of each endpoint of agents."""
    return [(endpoint.method.lower(), f"/{endpoint.route}") for endpoint in ENDPOINTS]


ALL = sorted({*list_routes(get_resolver()), *(path for _, path in agent_routes())} - set(OPEN))


def list_methods() -> dict[str, list[str]]:
    """Return the methods of each route: GET, and those that the table of audit decisions has.

    A test in tests/audit compares that table with the views.
    """
    methods = {route: ["get"] for route in ALL}
    for method, route in [*load_decisions(), *agent_routes()]:
        if route in methods and method not in methods[route]:
            methods[route].append(method)
    for route in METHOD_INDEPENDENT & methods.keys():
        methods[route] = ["get", *CHANGES]
    return methods


def add_missing_method(number: int, methods: list[str]) -> list[str]:
    """Add a method that a route does not have: views answer all of those alike.

    Which one it is differs from route to route.
    """
    missing = [method for method in CHANGES if method not in methods]
    return [*methods, missing[number % len(missing)]] if missing else methods


METHODS = list_methods()
SENT_METHODS = {
    route: add_missing_method(number, methods)
    for number, (route, methods) in enumerate(METHODS.items())
}


@pytest.fixture
def other_tenant() -> OtherTenant:
    return OtherTenant.make()


@pytest.fixture
def outsider() -> Workspace:
    """The workspace of an outsider who is administrator of it and owner of its organization."""
    workspace = WorkspaceFactory()
    owner = MembershipFactory(organization=workspace.organization, role="owner").user
    return WorkspaceMembershipFactory(workspace=workspace, user=owner, role="admin").workspace


def organization_key_headers(workspace: Workspace) -> dict[str, str]:
    """Return headers with an organization-wide key and the workspace."""
    _, secret = issue_key(organization=workspace.organization, name="test", scopes=["admin"])
    return {"X-Api-Key": secret, "X-Tenant-Id": str(workspace.pk)}


def find_violations(
    other_tenant: OtherTenant, client: Client, allowed: set[int], paths: list[str], **headers: str
) -> list[str]:
    """Return the requests with a status that is not allowed or with data of the other tenant.

    Ids in a response are not a leak, as the caller sent them.
    """
    violations = []
    for route in paths:
        path = other_tenant.path(route)
        for method in SENT_METHODS[route]:
            response = getattr(client, method)(
                path,
                data=None if method == "get" else "{}",
                headers=headers,
                **({} if method == "get" else {"content_type": "application/json"}),
            )
            content = response.content
            leaks = b"sentinel" in content.replace(path.encode(), b"")
            if response.status_code not in allowed or leaks or not _is_well_shaped(response):
                violations.append(f"{method} {route}: {response.status_code} {content[:200]!r}")
    return violations


def _is_well_shaped(response: Any) -> bool:
    """Whether a JSON error response has the common format."""
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    if response.status_code < 400 or not is_json or not response.content:
        return True
    return set(json.loads(response.content)) - {"error"} == {"detail", "code", "errors"}


def test_each_parameter_of_a_route_is_known(other_tenant):
    names = {name for route in ALL for name in PARAMETER.findall(route)}

    assert names - set(other_tenant.values) == set()


def test_an_outsiders_key_finds_no_row_of_another_tenant(client, other_tenant, outsider):
    pages = ("/o/", "/account/")  # pages do not accept keys and redirect to the sign-in page
    requested = [route for route in ALL if PARAMETER.search(route) and not route.startswith(pages)]

    # An update of an unknown run is deferred in the caller's own workspace.
    requested.remove("/runs/<uuid:run_id>")

    violations = find_violations(
        other_tenant, client, NOT_FOUND_STATUSES, requested, **organization_key_headers(outsider)
    )

    assert violations == []


def test_a_signed_in_outsider_finds_no_row_of_another_tenant(client, other_tenant, outsider):
    """The outsider also names the other workspace; without it, they ask as their own key does."""
    client.force_login(outsider.memberships.get().user)

    violations = find_violations(
        other_tenant,
        client,
        NOT_FOUND_STATUSES | {401, 403},
        [route for route in ALL if PARAMETER.search(route)],
        **{"X-Tenant-Id": str(other_tenant.workspace.pk)},
    )

    assert violations == []


def test_requests_without_credentials_are_refused(client, other_tenant):
    assert find_violations(other_tenant, client, REFUSED_STATUSES, ALL) == []


def test_requests_with_an_invalid_key_are_refused(client, other_tenant):
    assert (
        find_violations(other_tenant, client, REFUSED_STATUSES, ALL, **{"X-Api-Key": "slip_wrong"})
        == []
    )


def test_an_ingest_key_reads_nothing(client, other_tenant):
    key = key_for(other_tenant.workspace, "ingest")

    assert (
        find_violations(
            other_tenant, client, REFUSED_STATUSES, sorted(set(ALL) - INGEST), **{"X-Api-Key": key}
        )
        == []
    )
    assert client.get("/runs", headers={"X-Api-Key": key}).status_code == 405
    run = other_tenant.path("/runs/<uuid:run_id>")
    assert client.get(run, headers={"X-Api-Key": key}).status_code == 403


def test_lists_show_no_row_of_another_tenant(client, other_tenant, outsider):
    """Pages and lists that an outsider may read contain no data of the other tenant."""
    key = key_for(outsider)
    client.force_login(outsider.memberships.get().user)
    own_prefix = f"/o/{outsider.pk}"
    pages = [route.replace("/o/<uuid:workspace_id>", own_prefix) for route in ALL if "/o/" in route]
    lists = [route for route in (*pages, *ALL) if not PARAMETER.search(route)]

    for path in lists:
        for response in (
            client.get(path, headers={"X-Api-Key": key}),
            client.post(path, "{}", content_type="application/json", headers={"X-Api-Key": key}),
        ):
            assert b"sentinel" not in response.content, path
            assert str(other_tenant.workspace.pk).encode() not in response.content, path
            assert response.status_code < 500, path


@pytest.mark.parametrize("path", ["/admin/", "/admin/organizations/user/"])
def test_the_admin_site_is_for_operators(client, path):
    client.force_login(UserFactory())

    assert client.get(path).status_code == 302


def test_requests_without_a_csrf_token_are_refused(other_tenant):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(UserFactory())

    assert {
        route: status
        for route in ALL
        if (status := browser.post(other_tenant.path(route), {"name": "x"}).status_code)
        not in REFUSED_STATUSES
    } == {}
