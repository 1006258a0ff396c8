"""Retention of traces: tiers, upgrades, dropped partitions and settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection

from apps.api_keys.services import issue_key
from apps.feedback.models import Feedback
from apps.trace_store.models import RetainedTrace
from apps.trace_store.postgres import partitions
from apps.tracing.models import TraceTier
from apps.tracing.services import ensure_project, retention, update_project, upgrade_traces
from tests.factories.tracing import ProjectFactory, count_stored_runs, ingest, stored_run, wire_run

pytestmark = pytest.mark.usefixtures("forget_known_partitions")
DAY = 86_400


@pytest.fixture
def short_project(workspace):
    project = ensure_project(workspace.pk, "short")
    return update_project(project=project, changes={"trace_tier": TraceTier.SHORT})


def backdate(run_id, days):
    """Set the time at which the trace was received to `days` ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE trace_store_run SET received_at = now() - %s * interval '1 day'"
            " WHERE trace_id = %s",
            [days, str(run_id)],
        )


def stored_run_ids():
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM trace_store_run")
        return {run_id for (run_id,) in cursor.fetchall()}


def store_old_run(workspace, days, **fields):
    """Store a trace that started and was received `days` ago."""
    run_id = stored_run(workspace, start=datetime.now(UTC) - timedelta(days=days), **fields)
    backdate(run_id, days)
    return run_id


def backdate_short_tier(project, days=30):
    project.short_since = datetime.now(UTC) - timedelta(days=days)
    project.save()


def test_each_tier_has_its_own_retention(workspace, project, short_project):
    backdate_short_tier(short_project)
    kept = {
        store_old_run(workspace, 399),
        store_old_run(workspace, 13, session_name="short"),
    }
    store_old_run(workspace, 401)
    store_old_run(workspace, 15, session_name="short")

    retention.expire_traces()

    assert stored_run_ids() == kept


def test_a_trace_from_before_the_tier_was_lowered_keeps_the_long_retention(
    workspace, short_project
):
    backdate_short_tier(short_project, days=18)
    before = store_old_run(workspace, 20, session_name="short")
    store_old_run(workspace, 16, session_name="short")

    retention.expire_traces()

    assert stored_run_ids() == {before}


def test_raising_the_tier_keeps_stored_traces(workspace, short_project):
    backdate_short_tier(short_project)
    run_id = store_old_run(workspace, 20, session_name="short")
    update_project(project=short_project, changes={"trace_tier": TraceTier.LONG})

    retention.expire_traces()

    assert stored_run_ids() == {run_id}


def test_an_upgraded_trace_expires_with_the_long_tier(workspace, short_project):
    backdate_short_tier(short_project, days=500)
    root = wire_run(session_name="short", start=datetime.now(UTC) - timedelta(days=20))
    ingest(workspace, root, wire_run(parent=root))
    backdate(root["id"], 20)
    upgrade_traces(workspace.pk, [UUID(root["id"])])
    upgrade_traces(workspace.pk, [UUID(root["id"])])

    retention.expire_traces()
    assert count_stored_runs() == 2

    retention.expire_traces(datetime.now(UTC) + timedelta(days=381))
    assert count_stored_runs() == 0


def test_upgrading_an_unknown_trace_stores_no_row(workspace, project):
    upgrade_traces(workspace.pk, [UUID(int=7)])

    assert not RetainedTrace.unscoped.exists()


def test_an_expired_trace_is_deleted_with_its_late_children(workspace, project):
    root = wire_run(start=datetime.now(UTC) - timedelta(days=401))
    child = wire_run(parent=root)
    old = datetime.now(UTC) - timedelta(days=401)
    orphan = wire_run(parent=wire_run(start=old), start=old)
    ingest(workspace, root, child, orphan)
    backdate(root["id"], 401)
    backdate(orphan["trace_id"], 401)

    retention.expire_traces()

    assert count_stored_runs() == 0


def test_the_age_of_an_imported_trace_counts_from_its_import(workspace, project):
    run_id = stored_run(workspace, start=datetime.now(UTC) - timedelta(days=3000))

    retention.expire_traces()

    assert stored_run_ids() == {run_id}


def test_days_with_only_expired_traces_are_dropped(workspace, other_workspace, project):
    days = [datetime.now(UTC) - timedelta(days=days) for days in (20, 21, 22)]
    expired = [
        store_old_run(owner, days) for owner in (workspace, other_workspace) for days in (420, 421)
    ]
    for owner in (workspace, other_workspace):
        Feedback.unscoped.create(workspace=owner, run_id=expired[0], trace_id=expired[0], key="k")
    kept = stored_run(workspace, start=days[0])
    before = len(partitions.list_partitions())

    retention.expire_traces()

    assert stored_run_ids() == {kept}
    assert len(partitions.list_partitions()) <= before
    assert Feedback.unscoped.count() == 1  # the other workspace has no run with that id
    assert stored_run(workspace, start=datetime.now(UTC) - timedelta(days=420)) in stored_run_ids()


def test_a_day_is_kept_while_one_workspace_retains_a_trace_in_it(
    workspace, other_workspace, project
):
    retention.set_policy(
        organization_id=other_workspace.organization_id,
        workspace_id=other_workspace.pk,
        changes={"longlived_ttl_seconds": 1000 * DAY},
    )
    kept = store_old_run(other_workspace, 420)
    store_old_run(workspace, 420)

    retention.expire_traces()

    assert stored_run_ids() == {kept}


def test_a_retention_of_zero_days_keeps_traces_forever(settings, workspace, project):
    settings.TRACE_RETENTION_DAYS = 0
    run_id = store_old_run(workspace, 5000)

    retention.expire_traces()

    assert stored_run_ids() == {run_id}


def test_expiring_twice_changes_nothing(api, workspace, project):
    store_old_run(workspace, 401)
    kept = store_old_run(workspace, 3)

    retention.expire_traces()
    retention.expire_traces()

    assert stored_run_ids() == {kept}
    assert api.get(f"/sessions/{project.pk}").json()["run_count"] == 1


@pytest.mark.parametrize("path", ["/ttl-settings", "/workspaces/current/ttl-settings"])
def test_a_workspace_sets_its_retention(api, workspace, path):
    body = {"default_trace_tier": "shortlived", "shortlived_ttl_seconds": 3 * DAY}

    assert api.get(path).json() == {
        "default_trace_tier": "longlived",
        "longlived_ttl_seconds": 400 * DAY,
        "shortlived_ttl_seconds": 14 * DAY,
    }
    assert api.client.put(path, body, content_type="application/json").status_code == 200

    assert api.get(path).json() == {
        "default_trace_tier": "shortlived",
        "longlived_ttl_seconds": 400 * DAY,
        "shortlived_ttl_seconds": 3 * DAY,
    }
    assert ensure_project(workspace.pk, "made now").trace_tier == "shortlived"


def test_the_default_tier_is_applied_to_all_projects_on_request(api, workspace, project):
    body = {"default_trace_tier": "shortlived", "apply_to_all_projects": True}

    api.client.put("/ttl-settings", body, content_type="application/json")

    project.refresh_from_db()
    assert project.trace_tier == "shortlived"
    assert project.short_since is not None


def test_the_retention_of_the_organization_is_the_default_of_its_workspaces(api, client, workspace):
    _, key = issue_key(
        organization=workspace.organization, workspace=None, name="all", scopes=["admin"]
    )
    headers = {"X-Api-Key": key, "X-Tenant-Id": str(workspace.pk)}
    body = {"longlived_ttl_seconds": 50 * DAY, "default_trace_tier": "shortlived"}

    response = client.put(
        "/orgs/ttl-settings", body, content_type="application/json", headers=headers
    )

    assert response.status_code == 200
    assert api.get("/ttl-settings").json()["default_trace_tier"] == "shortlived"
    assert api.get("/ttl-settings").json()["longlived_ttl_seconds"] == 50 * DAY
    api.client.put(
        "/ttl-settings", {"longlived_ttl_seconds": 60 * DAY}, content_type="application/json"
    )
    assert api.get("/ttl-settings").json()["longlived_ttl_seconds"] == 60 * DAY
    assert api.get("/orgs/ttl-settings").json()["longlived_ttl_seconds"] == 50 * DAY


def test_keys_without_manage_permission_set_no_retention(api, make_api, workspace, other_workspace):
    writer = make_api(workspace, "write")
    body = {"longlived_ttl_seconds": DAY}

    # A key of one workspace, even with the admin role, does not manage the organization.
    for caller, path in ((writer, "/ttl-settings"), (api, "/orgs/ttl-settings")):
        response = caller.client.put(path, body, content_type="application/json")
        assert response.status_code == 403
    assert (
        make_api(other_workspace).get("/ttl-settings").json()["longlived_ttl_seconds"] == 400 * DAY
    )


@pytest.mark.parametrize(
    "body",
    [
        {"longlived_ttl_seconds": 0},
        {"longlived_ttl_seconds": -1},
        {"shortlived_ttl_seconds": 10**30},
        {"default_trace_tier": "eternal"},
        [],
    ],
)
def test_an_invalid_retention_is_rejected(api, body):
    response = api.client.put("/ttl-settings", body, content_type="application/json")

    assert response.status_code == 422
    assert api.get("/ttl-settings").json()["longlived_ttl_seconds"] == 400 * DAY


def test_the_retention_of_a_project_overrides_that_of_the_workspace(api, workspace, project):
    ProjectFactory(workspace=workspace, name="brief", long_days=30)
    ProjectFactory(workspace=workspace, name="long", long_days=1000)
    kept = {
        store_old_run(workspace, 29, session_name="brief"),
        store_old_run(workspace, 500, session_name="long"),
        store_old_run(workspace, 399),
    }
    store_old_run(workspace, 31, session_name="brief")
    store_old_run(workspace, 401)

    retention.expire_traces()

    assert stored_run_ids() == kept
    body = {"id": [str(run_id) for run_id in kept], "select": ["ttl_seconds"]}
    ttls = {run["ttl_seconds"] for run in api.post("/runs/query", body).json()["runs"]}
    assert ttls == {30 * 86_400, 400 * 86_400, 1000 * 86_400}
