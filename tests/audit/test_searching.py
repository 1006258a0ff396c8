import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.audit.actions import Action
from apps.audit.models import Entry
from apps.audit.services import Target, record
from tests.factories.organizations import MembershipFactory, WorkspaceFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def workspace():
    return WorkspaceFactory()


@pytest.fixture
def owner(workspace):
    return MembershipFactory(organization=workspace.organization, role="owner").user


def tell(workspace, n=1, action=Action.PROJECT_DELETED, name="project"):
    for number in range(n):
        record(action, Target("project", number, f"{name} {number}"), workspace_id=workspace.pk)


def names(items):
    return [item["target"]["name"] for item in items]


def test_anonymous_users_and_outsiders_cannot_read_the_log(client, workspace, owner):
    tell(workspace)
    outsider = MembershipFactory(role="owner").user

    assert client.get("/audit-logs").status_code == 401
    client.force_login(outsider)
    assert client.get(f"/o/{workspace.pk}/settings/audit").status_code == 404
    assert client.post(f"/o/{workspace.pk}/settings/audit/export").status_code == 404
    headers = {"X-Organization-Id": str(workspace.organization_id)}
    assert client.get("/audit-logs", headers=headers).status_code == 404


def test_member_without_the_permission_is_rejected(client, workspace):
    member = MembershipFactory(organization=workspace.organization, role="member").user
    workspace.memberships.create(user=member, role="admin")
    client.force_login(member)

    assert client.get(f"/o/{workspace.pk}/settings/audit").status_code == 403
    headers = {"X-Organization-Id": str(workspace.organization_id)}
    assert client.get("/audit-logs", headers=headers).status_code == 403


def test_the_api_pages_through_everything_once(client, workspace, owner):
    tell(workspace, 7)
    tell(WorkspaceFactory(), 3, name="foreign")
    client.force_login(owner)
    headers = {"X-Organization-Id": str(workspace.organization_id)}

    seen, cursor, pages = [], "", 0
    while cursor is not None:
        query = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = client.get("/audit-logs", query, headers=headers).json()
        seen += names(page["items"])
        cursor, pages = page["cursor"], pages + 1

    assert seen == [f"project {n}" for n in reversed(range(7))]
    assert pages == 3


def test_the_api_filters_by_time_action_and_actor(client, workspace, owner):
    tell(workspace, 2)
    tell(workspace, 1, action=Action.RUN_SHARED, name="run")
    entry = Entry.objects.of_organization(workspace.organization_id).newest_first()[1]
    client.force_login(owner)
    headers = {"X-Organization-Id": str(workspace.organization_id)}

    def ask(**query):
        return names(client.get("/audit-logs", query, headers=headers).json()["items"])

    assert ask(action="run") == ["run 0"]
    assert ask(action="run.shared") == ["run 0"]
    assert ask(action="ru") == []
    assert ask(start_time=entry.at.isoformat()) == ["run 0", "project 1"]
    assert ask(end_time=entry.at.isoformat()) == ["project 0"]
    assert ask(actor="unknown@example.com") == []
    assert ask(actor=entry.actor_label[:6]) == ["run 0", "project 1", "project 0"]
    assert ask(target="project 1") == ["project 1"]


@pytest.mark.parametrize("cursor", ["x", "AAAA", "MjAyNg", "é", "%00"])
def test_invalid_cursor_is_rejected(client, workspace, owner, cursor):
    client.force_login(owner)
    headers = {"X-Organization-Id": str(workspace.organization_id)}

    response = client.get("/audit-logs", {"cursor": cursor}, headers=headers)

    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


def test_query_count_of_a_page_does_not_grow_with_entries(client, workspace, owner):
    client.force_login(owner)
    address = f"/o/{workspace.pk}/settings/audit"
    client.get(address)
    counts = []
    for n in (2, 60):
        tell(workspace, n)

        with CaptureQueriesContext(connection) as queries:
            page = client.get(address)

        assert page.status_code == 200
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_the_page_shows_and_filters_and_escapes(client, workspace, owner):
    tell(workspace, 1, name="<script>alert(1)</script>")
    tell(workspace, 1, action=Action.RUN_SHARED, name="other")
    client.force_login(owner)

    page = client.get(f"/o/{workspace.pk}/settings/audit", {"action": "project"}).content.decode()

    assert "&lt;script&gt;alert(1)&lt;/script&gt; 0" in page
    assert "<script>alert(1)" not in page
    assert "other 0" not in page


def test_log_is_exported_as_json_lines(client, workspace, owner):
    tell(workspace, 3)
    client.force_login(owner)

    response = client.post(f"/o/{workspace.pk}/settings/audit/export", {"format": "jsonl"})
    lines = [json.loads(line) for line in response.getvalue().splitlines()]

    assert [line["target"]["name"] for line in lines[1:]] == [
        "project 2", "project 1", "project 0",
    ]  # fmt: skip
    assert lines[0]["action"] == "audit.exported"
    assert lines[0]["actor"]["name"] == owner.email


def test_csv_export_escapes_formulas(client, workspace, owner):
    tell(workspace, 1, name="=HYPERLINK(1)")
    client.force_login(owner)

    response = client.post(
        f"/o/{workspace.pk}/settings/audit/export", {"format": "csv", "action": "project"}
    )
    header, row = csv.reader(io.StringIO(response.getvalue().decode()))

    assert dict(zip(header, row, strict=True))["target_name"] == "'=HYPERLINK(1) 0"


def test_unknown_export_format_is_rejected_and_not_recorded(client, workspace, owner):
    client.force_login(owner)

    response = client.post(f"/o/{workspace.pk}/settings/audit/export", {"format": "xlsx"})

    assert response.status_code == 422
    assert Entry.objects.of_organization(workspace.organization_id).count() == 0


def test_pruning_deletes_old_entries_and_is_recorded(workspace):
    old = datetime.now(UTC) - timedelta(days=10)
    Entry.objects.create(
        at=old, organization_id=workspace.organization_id, action="project.deleted",
        target_kind="project", actor_kind="system", actor_label="x",
    )  # fmt: skip
    tell(workspace)
    cut = (old + timedelta(days=2)).date().isoformat()

    call_command(
        "prune_audit_log", f"--before={cut}", f"--organization={workspace.organization_id}"
    )

    left = Entry.objects.of_organization(workspace.organization_id).newest_first()
    assert [(entry.action, (entry.after or {}).get("count")) for entry in left] == [
        ("audit.forgotten", 1), ("project.deleted", None),
    ]  # fmt: skip


def test_pruning_rejects_a_future_date(workspace):
    tell(workspace)
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()

    with pytest.raises(CommandError, match="must not be in the future"):
        call_command("prune_audit_log", f"--before={tomorrow}")

    assert Entry.objects.of_organization(workspace.organization_id).count() == 1
