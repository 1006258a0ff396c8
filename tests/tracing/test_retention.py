"""How long traces live: tiers, upgrades, whole days, and the settings of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection

from apps.api_keys.services import issue_key
from apps.feedback.models import Feedback
from apps.trace_store.postgres import partitions
from apps.tracing.models import RetainedTrace, TraceTier
from apps.tracing.services import ensure_project, expiry, retention, update_project, upgrade_traces
from tests.factories.tracing import ProjectFactory, ingest, rows, stored_run, wire_run

DAY = 86_400


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


@pytest.fixture
def short_project(workspace):
    project = ensure_project(workspace.pk, "short")
    return update_project(project=project, changes={"trace_tier": TraceTier.SHORT})


@pytest.fixture(autouse=True)
def knows_nothing():
    """What the process knows about partitions is rolled back with the test."""
    partitions._covered_until.clear()
    yield
    partitions._covered_until.clear()


def aged(run_id, days):
    """As if the run had been received so long ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE trace_store_run SET received_at = now() - %s * interval '1 day'"
            " WHERE trace_id = %s",
            [days, str(run_id)],
        )


def left():
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM trace_store_run")
        return {run_id for (run_id,) in cursor.fetchall()}


def run_of(workspace, days, **fields):
    """A trace that came so many days ago, and was told then."""
    run_id = stored_run(workspace, start=datetime.now(UTC) - timedelta(days=days), **fields)
    aged(run_id, days)
    return run_id


def in_short_days(project, days=30):
    project.short_since = datetime.now(UTC) - timedelta(days=days)
    project.save()


def test_each_tier_has_its_life(workspace, project, short_project):
    in_short_days(short_project)
    kept = {
        run_of(workspace, 399),
        run_of(workspace, 13, session_name="short"),
    }
    run_of(workspace, 401)
    run_of(workspace, 15, session_name="short")

    expiry.expire()

    assert left() == kept


def test_a_trace_that_came_before_its_project_was_short_lived_is_long_lived(
    workspace, short_project
):
    in_short_days(short_project, days=18)
    before = run_of(workspace, 20, session_name="short")
    run_of(workspace, 16, session_name="short")

    expiry.expire()

    assert left() == {before}


def test_raising_the_tier_keeps_what_is_there(workspace, short_project):
    in_short_days(short_project)
    run_id = run_of(workspace, 20, session_name="short")
    update_project(project=short_project, changes={"trace_tier": TraceTier.LONG})

    expiry.expire()

    assert left() == {run_id}


def test_an_upgraded_trace_survives_whole_and_goes_when_the_long_lived_do(workspace, short_project):
    in_short_days(short_project, days=500)
    root = wire_run(session_name="short", start=datetime.now(UTC) - timedelta(days=20))
    ingest(workspace, root, wire_run(parent=root))
    aged(root["id"], 20)
    upgrade_traces(workspace.pk, [UUID(root["id"])])
    upgrade_traces(workspace.pk, [UUID(root["id"])])

    expiry.expire()
    assert rows() == 2

    expiry.expire(datetime.now(UTC) + timedelta(days=381))
    assert rows() == 0


def test_an_upgrade_where_nothing_is_short_lived_costs_no_row(workspace, project):
    upgrade_traces(workspace.pk, [UUID(int=7)])

    assert not RetainedTrace.unscoped.exists()


def test_a_trace_goes_with_its_root_and_late_children_go_too(workspace, project):
    root = wire_run(start=datetime.now(UTC) - timedelta(days=401))
    child = wire_run(parent=root)
    old = datetime.now(UTC) - timedelta(days=401)
    orphan = wire_run(parent=wire_run(start=old), start=old)
    ingest(workspace, root, child, orphan)
    aged(root["id"], 401)
    aged(orphan["trace_id"], 401)

    expiry.expire()

    assert rows() == 0


def test_what_was_imported_lately_is_as_young_as_its_import(workspace, project):
    run_id = stored_run(workspace, start=datetime.now(UTC) - timedelta(days=3000))

    expiry.expire()

    assert left() == {run_id}


def test_days_without_anything_to_keep_go_as_a_whole(workspace, stranger, project):
    days = [datetime.now(UTC) - timedelta(days=days) for days in (20, 21, 22)]
    gone = [run_of(one, days) for one in (workspace, stranger) for days in (420, 421)]
    for project_of in (workspace, stranger):
        Feedback.unscoped.create(workspace=project_of, run_id=gone[0], trace_id=gone[0], key="k")
    kept = stored_run(workspace, start=days[0])
    before = len(partitions.list_partitions())

    expiry.expire()

    assert left() == {kept}
    assert len(partitions.list_partitions()) <= before
    assert Feedback.unscoped.count() == 1  # the stranger's has no run of that id
    assert stored_run(workspace, start=datetime.now(UTC) - timedelta(days=420)) in left()


def test_a_day_is_not_dropped_while_anybody_keeps_something_in_it(workspace, stranger, project):
    retention.set_policy(
        organization_id=stranger.organization_id,
        workspace_id=stranger.pk,
        changes={"longlived_ttl_seconds": 1000 * DAY},
    )
    kept = run_of(stranger, 420)
    run_of(workspace, 420)

    expiry.expire()

    assert left() == {kept}


def test_for_ever_is_a_life_too(settings, workspace, project):
    settings.TRACE_RETENTION_DAYS = 0
    run_id = run_of(workspace, 5000)

    expiry.expire()

    assert left() == {run_id}


def test_expiring_twice_changes_nothing_more(api, workspace, project):
    run_of(workspace, 401)
    kept = run_of(workspace, 3)

    expiry.expire()
    expiry.expire()

    assert left() == {kept}
    assert api.get(f"/sessions/{project.pk}").json()["run_count"] == 1


@pytest.mark.parametrize("path", ["/ttl-settings", "/workspaces/current/ttl-settings"])
def test_a_workspace_says_how_long_its_traces_live(api, workspace, path):
    said = {"default_trace_tier": "shortlived", "shortlived_ttl_seconds": 3 * DAY}

    assert api.get(path).json() == {
        "default_trace_tier": "longlived",
        "longlived_ttl_seconds": 400 * DAY,
        "shortlived_ttl_seconds": 14 * DAY,
    }
    assert api.client.put(path, said, content_type="application/json").status_code == 200

    assert api.get(path).json() == {
        "default_trace_tier": "shortlived",
        "longlived_ttl_seconds": 400 * DAY,
        "shortlived_ttl_seconds": 3 * DAY,
    }
    assert ensure_project(workspace.pk, "made now").trace_tier == "shortlived"


def test_all_projects_take_the_default_tier_when_asked_to(api, workspace, project):
    said = {"default_trace_tier": "shortlived", "apply_to_all_projects": True}

    api.client.put("/ttl-settings", said, content_type="application/json")

    project.refresh_from_db()
    assert project.trace_tier == "shortlived"
    assert project.short_since is not None


def test_an_organization_speaks_for_workspaces_that_say_nothing(api, client, workspace):
    _, key = issue_key(
        organization=workspace.organization, workspace=None, name="all", scopes=["admin"]
    )
    headers = {"X-Api-Key": key, "X-Tenant-Id": str(workspace.pk)}
    said = {"longlived_ttl_seconds": 50 * DAY, "default_trace_tier": "shortlived"}

    response = client.put(
        "/orgs/ttl-settings", said, content_type="application/json", headers=headers
    )

    assert response.status_code == 200
    assert api.get("/ttl-settings").json()["default_trace_tier"] == "shortlived"
    assert api.get("/ttl-settings").json()["longlived_ttl_seconds"] == 50 * DAY
    api.client.put(
        "/ttl-settings", {"longlived_ttl_seconds": 60 * DAY}, content_type="application/json"
    )
    assert api.get("/ttl-settings").json()["longlived_ttl_seconds"] == 60 * DAY
    assert api.get("/orgs/ttl-settings").json()["longlived_ttl_seconds"] == 50 * DAY


def test_only_who_manages_the_workspace_says_how_long_traces_live(api, api_of, workspace, stranger):
    writer = api_of(workspace, "write")
    body = {"longlived_ttl_seconds": DAY}

    # A key of one workspace, be it an admin's, does not speak for the organization.
    for one, path in ((writer, "/ttl-settings"), (api, "/orgs/ttl-settings")):
        response = one.client.put(path, body, content_type="application/json")
        assert response.status_code == 403
    assert api_of(stranger).get("/ttl-settings").json()["longlived_ttl_seconds"] == 400 * DAY


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
def test_a_life_that_makes_no_sense_is_refused(api, body):
    response = api.client.put("/ttl-settings", body, content_type="application/json")

    assert response.status_code == 422
    assert api.get("/ttl-settings").json()["longlived_ttl_seconds"] == 400 * DAY


def test_a_projects_own_life_goes_before_the_workspaces(api, workspace, project):
    ProjectFactory(workspace=workspace, name="brief", long_days=30)
    ProjectFactory(workspace=workspace, name="long", long_days=1000)
    kept = {
        run_of(workspace, 29, session_name="brief"),
        run_of(workspace, 500, session_name="long"),
        run_of(workspace, 399),
    }
    run_of(workspace, 31, session_name="brief")
    run_of(workspace, 401)

    expiry.expire()

    assert left() == kept
    body = {"id": [str(one) for one in kept], "select": ["ttl_seconds"]}
    told = {one["ttl_seconds"] for one in api.post("/runs/query", body).json()["runs"]}
    assert told == {30 * 86_400, 400 * 86_400, 1000 * 86_400}
