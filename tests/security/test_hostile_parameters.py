"""Every page with hostile query parameters, as a member with all rights; `make fuzz` does the API.

The parameters of a page are those that its view reads, so new ones are included automatically.
None may end in an unhandled error: it would be a 500, which no user can act on, and an entry in
the operator's error reports that anyone can produce.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import get_resolver

from tests.factories.organizations import MembershipFactory, WorkspaceMembershipFactory
from tests.methods import list_views
from tests.other_tenant import PARAMETER, OtherTenant

log = logging.getLogger(__name__)
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


@pytest.mark.slow  # about a thousand pages
@pytest.mark.timeout(1800)
@pytest.mark.django_db
@pytest.mark.parametrize("is_each", [False, True], ids=["together", "each"])
def test_no_parameter_of_a_page_ends_in_an_unhandled_error(*, is_each: bool) -> None:
    tenant = OtherTenant.make()
    workspace = tenant.workspace
    user = MembershipFactory(organization=workspace.organization, role="owner").user
    WorkspaceMembershipFactory(workspace=workspace, user=user, role="admin")
    client = Client(raise_request_exception=False)
    client.force_login(user)
    failures, requests = [], 0
    for route, _ in list_views(get_resolver()):
        if not route.startswith(PAGES) or not set(PARAMETER.findall(route)) <= set(tenant.values):
            continue
        path = tenant.path(route)
        names: set[str] = set()
        with recorded_names(names):
            assert client.get(path).status_code < 500, route
        for group in [[name] for name in sorted(names)] if is_each else [sorted(names)]:
            for value in HOSTILE_VALUES if group else []:
                response = client.get(path, dict.fromkeys(group, value))
                requests += 1
                if response.status_code >= 500:
                    failures.append(f"{route} {group}={value[:20]!r}")

    log.info("%s requests", requests)
    assert requests > 300
    assert failures == []
