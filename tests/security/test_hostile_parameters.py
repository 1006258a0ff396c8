"""Every page with hostile query parameters, as a member with all rights; `make fuzz` does the API.

The parameters of a page are those that its view reads, so new ones are included automatically.
None may end in an unhandled error: it would be a 500, which no user can act on, and an entry in
the operator's error reports that anyone can produce.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import get_resolver

from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceMembershipFactory,
)
from tests.methods import list_views
from tests.other_tenant import PARAMETER, OtherTenant

log = logging.getLogger(__name__)
PIECES = 16
"""The routes are divided among tests, so that each has an end and they run in parallel."""
MAX_CPU_SECONDS = 5
"""Of a request without its database; anyone may repeat it."""
PAGES = ("/o/", "/account", "/sign-", "/organizations", "/invitations")

HOSTILE_VALUES = [
    "\x00",
    b"\xff\xed\xa0\xbd",
    "-1",
    "9" * 5000,
    "a=NaN",
    "a=" + "[" * 3000,
    "[" * 3000,
    '{"a": "\\u0000"}',
    "9999-12-31T23:59:59-14:00",
    "a," * 2000,
]


@contextmanager
def recorded_names(names: set[str]) -> Iterator[None]:
    """Add the names that views look up in a query string or form."""
    patch = pytest.MonkeyPatch()

    def record(method: str) -> None:
        original = getattr(QueryDict, method)

        def recording(self: QueryDict, name: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(name, str):
                names.add(name)
            return original(self, name, *rest, **options)

        patch.setattr(QueryDict, method, recording)

    for method in ("get", "getlist", "__getitem__", "__contains__"):
        record(method)
    try:
        yield
    finally:
        patch.undo()


@pytest.fixture
def tenant() -> OtherTenant:
    return OtherTenant.make()


@pytest.fixture
def member(tenant: OtherTenant) -> Client:
    """A client of the owner of the tenant's organization."""
    workspace = tenant.workspace
    user = MembershipFactory(organization=workspace.organization, role="owner").user
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="admin")
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def list_routes(tenant: OtherTenant) -> list[str]:
    """Return the routes of pages whose parameters are known."""
    known = set(tenant.values)
    return [
        route
        for route, _ in list_views(get_resolver())
        if route.startswith(PAGES) and set(PARAMETER.findall(route)) <= known
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("route", "parameter"),
    [
        ("/o/<uuid:workspace_id>/projects", "q"),
        ("/o/<uuid:workspace_id>/search", "q"),
        ("/o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/split-names", "as_of"),
        ("/o/<uuid:workspace_id>/datasets/<uuid:dataset_id>/versions/diff", "newer"),
        ("/o/<uuid:workspace_id>/prompts/p/<str:repo>/runs", "commit"),
    ],
)
def test_text_that_the_database_refuses_is_a_bad_request(
    tenant: OtherTenant, member: Client, route: str, parameter: str
) -> None:
    response = member.get(tenant.path(route), {parameter: "\x00"}, headers={"Accept": "text/html"})

    assert response.status_code == 400
    assert "The request contains a NUL character." in response.text


@pytest.mark.django_db
@pytest.mark.parametrize("value", ["a=NaN", "-1", "9999-12-31T23:59:59-14:00", "home"])
@pytest.mark.parametrize("path", ["/sign-in", "/admin/login/"])
def test_next_that_is_no_path_leads_home(member: Client, path: str, value: str) -> None:
    member.force_login(UserFactory(is_staff=True))

    response = member.get(path, {"next": value})

    assert (response.status_code, response.headers["Location"]) == (
        302,
        "/" if path == "/sign-in" else "/admin/",
    )


@pytest.mark.slow  # about three thousand requests
@pytest.mark.timeout(600)
@pytest.mark.django_db
@pytest.mark.parametrize("piece", range(PIECES))
def test_no_parameter_of_a_page_ends_in_an_unhandled_error(
    tenant: OtherTenant, member: Client, piece: int
) -> None:
    """All parameters of a page at once, then each by itself."""
    failures, requests, slowest = [], 0, (0.0, "")
    for route in list_routes(tenant)[piece::PIECES]:
        path = tenant.path(route)
        names: set[str] = set()
        with recorded_names(names):
            response = member.get(path)
            response.getvalue()
            assert response.status_code < 500, route
        alone = [[name] for name in sorted(names)] if len(names) > 1 else []
        for group in [sorted(names), *alone]:
            for value in HOSTILE_VALUES if group else []:
                started_at = time.process_time()
                response = member.get(path, dict.fromkeys(group, value))
                request = f"{route} {group}={value[:20]!r}"
                response.getvalue()
                slowest = max(slowest, (time.process_time() - started_at, request))
                requests += 1
                if response.status_code >= 500:
                    failures.append(request)

    log.info("%s requests, the slowest took %.2f s of CPU: %s", requests, *slowest)
    assert requests
    assert failures == []
    assert slowest[0] < MAX_CPU_SECONDS, slowest
