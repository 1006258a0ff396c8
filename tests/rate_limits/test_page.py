"""The pages of rate limits and of IP addresses."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from apps.api_keys.models import ApiKey
from apps.rate_limits.table import ROWS, IdentityKind
from apps.rate_limits.usage_report import build_usage_report
from tests.factories.api_keys import api_key_row, key_for
from tests.factories.organizations import (
    MembershipFactory,
    UserFactory,
    WorkspaceFactory,
    WorkspaceMembershipFactory,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("limits")]


@pytest.fixture(autouse=True)
def clock():
    with time_machine.travel(4_000_000_000.0, tick=False):
        yield


@pytest.fixture
def owner(client, workspace):
    membership = MembershipFactory(organization=workspace.organization, role="owner")
    client.force_login(membership.user)
    return membership.user


def create_named_key(workspace, name: str) -> str:
    secret = key_for(workspace)
    ApiKey.objects.filter(pk=api_key_row(secret).pk).update(name=name)
    return secret


def find_row(report, match: str, identity: str = "x-api-key"):
    return next(r for r in report.rows if r.row.match == match and r.row.identity == identity)


def test_report_has_the_highest_count_and_the_sum_of_rejections(client, workspace):
    busy, calm = create_named_key(workspace, "busy"), create_named_key(workspace, "calm")
    foreign = key_for(WorkspaceFactory())
    for secret, times in ((busy, 17), (calm, 2), (foreign, 3)):
        for _ in range(times):
            client.post("/runs/query", headers={"X-Api-Key": secret})

    usage = find_row(build_usage_report(workspace.organization_id), "POST /runs/query")

    assert (usage.count, usage.limit, usage.seconds) == (17, 15, 10)
    assert (usage.identity_name, usage.active, usage.rejected, usage.share) == ("busy", 2, 2, 100)


def test_user_counts_for_the_organization_of_the_named_workspace(client, workspace):
    user = WorkspaceMembershipFactory(workspace=workspace, role="editor").user
    client.force_login(user)
    for _ in range(3):
        client.get("/sessions", headers={"X-Tenant-Id": str(workspace.pk)})

    usage = find_row(
        build_usage_report(workspace.organization_id),
        "Any request with x-user-id",
        "x-user-id + IP",
    )

    assert (usage.count, usage.identity_name, usage.rejected) == (3, user.email, 0)


def test_page_lists_the_rows_by_key_and_user(client, workspace, owner):
    secret = create_named_key(workspace, "loader")
    for _ in range(2):
        client.post("/runs/stats", headers={"X-Api-Key": secret})

    response = client.get(f"/o/{workspace.pk}/settings/limits")

    assert response.status_code == 200
    rows = [
        [
            " ".join(strip_tags(cell).split())
            for cell in re.findall(r"<t[hd].*?</t[hd]>", find_row, re.DOTALL)
        ]
        for find_row in re.findall(r"<tr>.*?</tr>", response.content.decode(), re.DOTALL)
    ]
    assert len(rows) == 1 + sum(row.identity is not IdentityKind.IP for row in ROWS)
    stats = next(r for r in rows if r[0] == "Stats")
    assert stats == [
        "Stats",
        "/runs/stats",
        "Key",
        "Key: 1 in 10 s",
        "Highest usage: 2 loader",
        "100%",
        "1",
        "1 rejected in 8 days",
    ]


def test_page_requires_the_usage_permission(client, workspace):
    viewer = UserFactory()
    MembershipFactory(organization=workspace.organization, user=viewer, role="viewer")
    WorkspaceMembershipFactory(workspace=workspace, user=viewer, role="viewer")
    for user, expected_status in ((viewer, 403), (UserFactory(), 404)):
        client.force_login(user)
        assert client.get(f"/o/{workspace.pk}/settings/limits").status_code == expected_status
    client.logout()
    assert client.get(f"/o/{workspace.pk}/settings/limits").status_code == 302


def test_query_count_of_the_page_does_not_grow_with_keys(client, workspace, owner, monkeypatch):
    # Caches do not expire, so that only queries of the page are counted.
    monkeypatch.setattr("apps.core.ttl_cache.time", SimpleNamespace(monotonic=lambda: 100.0))

    def load(keys: int) -> None:
        for _ in range(keys):
            client.get("/sessions", headers={"X-Api-Key": key_for(workspace)})

    load(1)
    client.get(f"/o/{workspace.pk}/settings/limits")
    with CaptureQueriesContext(connection) as few:
        client.get(f"/o/{workspace.pk}/settings/limits")
    load(8)
    with CaptureQueriesContext(connection) as many:
        client.get(f"/o/{workspace.pk}/settings/limits")

    assert len(many) == len(few)


def test_only_announced_addresses_are_shown(client, workspace, owner, settings):
    settings.ANNOUNCED_ADDRESSES = {"egress": ("203.0.113.7",), "ingress": ()}

    page = client.get(f"/o/{workspace.pk}/settings/addresses").content.decode()

    assert "203.0.113.7" in page
    assert "has not announced any (<code>INGRESS_ADDRESSES" in page
    assert "EGRESS_ADDRESSES" not in page.replace("INGRESS_ADDRESSES", "")
    assert "34.59.65.97" not in page
