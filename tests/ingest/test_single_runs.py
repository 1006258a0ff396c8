"""POST /runs and PATCH /runs/{id}."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from apps.core.ids import uuid7
from apps.ingest.models import DeferredOperation
from apps.ingest.services import maintenance
from apps.trace_store import Payload, Status
from apps.tracing.models import Project
from tests.factories.tracing import count_stored_runs, ingest, read_run, stored_run, wire_run

UPDATE = {"end_time": "2026-01-02T03:04:06Z", "outputs": {"answer": "because"}}


@pytest.mark.parametrize("method", ["post", "patch"])
def test_anonymous_request_is_rejected(client, db, method):
    path = "/runs" if method == "post" else f"/runs/{uuid7()}"

    assert getattr(client, method)(path, {}, content_type="application/json").status_code == 401


def test_read_only_key_is_rejected(make_api, workspace):
    reader = make_api(workspace, "read")

    assert reader.post("/runs", wire_run()).status_code == 403
    assert reader.patch(f"/runs/{uuid7()}", UPDATE).status_code == 403
    assert count_stored_runs() == 0
    assert not DeferredOperation.objects.for_workspace(workspace).exists()


def test_an_update_of_another_workspace_does_not_change_the_run(
    make_api, workspace, other_workspace
):
    run_id = stored_run(workspace)
    before = read_run(workspace, run_id)

    response = make_api(other_workspace).patch(f"/runs/{run_id}", {"outputs": {"answer": "stolen"}})

    assert response.status_code == 202  # as for any run that is not stored yet
    assert read_run(workspace, run_id) == before


def test_run_without_id_or_position_gets_both(api, workspace):
    response = api.post("/runs", {"name": "x", "run_type": "chain", "inputs": {"a": 1}})

    assert response.status_code == 202
    row = read_run(workspace, response.json()["id"]).row
    assert row.trace_id == row.id
    assert row.is_root
    assert row.status == Status.PENDING
    assert Project.objects.for_workspace(workspace).get(pk=row.project_id).name == "default"


def test_a_time_without_a_zone_is_utc_and_a_number_is_milliseconds(api, workspace):
    naive = api.post(
        "/runs", {"name": "x", "run_type": "llm", "start_time": "2026-01-02T03:04:05.000006"}
    )
    number = api.post("/runs", {"name": "x", "run_type": "llm", "start_time": 1767323045250})

    start_times = [
        read_run(workspace, response.json()["id"]).row.start_time for response in (naive, number)
    ]
    assert start_times[0] == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert start_times[1] == datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC)


def test_repeat_without_position_does_not_create_a_second_run(api):
    body = {"id": str(uuid7()), "name": "x", "run_type": "chain"}

    for _ in range(2):
        assert api.post("/runs", body).status_code == 202

    assert count_stored_runs() == 1


def test_an_update_without_position_finds_its_run(api, workspace):
    run = wire_run(end_time=None, outputs=None, session_name="somewhere")
    ingest(workspace, run)

    assert api.patch(f"/runs/{run['id']}", UPDATE).status_code == 202

    stored = read_run(workspace, run["id"])
    assert stored.value(Payload.OUTPUTS) == {"answer": "because"}
    assert count_stored_runs() == 1


def test_update_without_position_is_deferred_until_its_run_is_stored(api, workspace):
    run = wire_run(end_time=None, outputs=None)

    assert api.patch(f"/runs/{run['id']}", UPDATE).status_code == 202
    assert count_stored_runs() == 0
    assert api.post("/runs", run).status_code == 202

    stored = read_run(workspace, run["id"])
    assert stored.row.status == Status.SUCCESS
    assert stored.value(Payload.OUTPUTS) == {"answer": "because"}
    assert not DeferredOperation.objects.for_workspace(workspace).exists()


def test_child_is_deferred_until_its_parent_is_stored(api, workspace):
    parent = wire_run()
    child_id, grandchild_id = str(uuid7()), str(uuid7())
    api.post(
        "/runs",
        {"id": grandchild_id, "parent_run_id": child_id, "name": "g", "run_type": "tool"},
    )
    api.post(
        "/runs", {"id": child_id, "parent_run_id": parent["id"], "name": "c", "run_type": "tool"}
    )
    assert count_stored_runs() == 0

    api.post("/runs", parent)

    assert count_stored_runs() == 3
    assert read_run(workspace, grandchild_id).row.parent_run_ids == [
        UUID(parent["id"]),
        UUID(child_id),
    ]


def test_deferred_operation_ignores_runs_of_another_workspace(make_api, workspace, other_workspace):
    run = wire_run()
    make_api(other_workspace).patch(f"/runs/{run['id']}", {"outputs": {"answer": "planted"}})

    make_api(workspace).post("/runs", run)

    assert read_run(workspace, run["id"]).value(Payload.OUTPUTS) == {"answer": "because"}
    assert DeferredOperation.objects.for_workspace(other_workspace).count() == 1


def test_deferred_update_is_retried_when_its_run_exists(workspace, api, time_machine):
    run = wire_run(end_time=None, outputs=None)
    api.patch(f"/runs/{run['id']}", UPDATE)
    (deferred,) = DeferredOperation.objects.for_workspace(workspace)
    DeferredOperation.objects.for_workspace(workspace).delete()
    ingest(workspace, run)
    deferred.save(force_insert=True)  # as if both had been committed at the same time
    time_machine.move_to(datetime.now(UTC) + timedelta(seconds=10))

    maintenance.retry_deferred_operations()

    assert read_run(workspace, run["id"]).row.status == Status.SUCCESS
    assert not DeferredOperation.objects.for_workspace(workspace).exists()


def test_child_without_parent_becomes_a_root(workspace, api, time_machine):
    child_id = str(uuid7())
    api.post(
        "/runs", {"id": child_id, "parent_run_id": str(uuid7()), "name": "c", "run_type": "tool"}
    )
    time_machine.move_to(datetime.now(UTC) + timedelta(minutes=16))

    maintenance.retry_deferred_operations()
    maintenance.retry_deferred_operations()

    assert read_run(workspace, child_id).row.is_root
    assert count_stored_runs() == 1


def test_updates_of_missing_runs_do_not_delay_other_deferred_operations(
    workspace, api, time_machine, monkeypatch
):
    monkeypatch.setattr(maintenance, "_BATCH_SIZE", 2)
    for _ in range(5):
        api.patch(f"/runs/{uuid7()}", UPDATE)
    run = wire_run(end_time=None, outputs=None)
    api.patch(f"/runs/{run['id']}", UPDATE)
    deferred_operations = DeferredOperation.objects.for_workspace(workspace)
    update = deferred_operations.get(run_id=run["id"])
    update.delete()
    ingest(workspace, run)
    update.save(force_insert=True)  # as if both had been committed at the same time
    orphan_id = str(uuid7())
    orphan = {"id": orphan_id, "parent_run_id": str(uuid7()), "name": "c", "run_type": "tool"}
    api.post("/runs", orphan)
    time_machine.move_to(datetime.now(UTC) + timedelta(minutes=16))

    maintenance.retry_deferred_operations()

    assert read_run(workspace, run["id"]).row.status == Status.SUCCESS
    assert read_run(workspace, orphan_id).row.is_root
    assert deferred_operations.count() == 5


@pytest.mark.parametrize("is_child_first", [False, True])
def test_children_of_an_orphan_stay_below_it(workspace, api, time_machine, is_child_first):
    orphan_id, child_id = str(uuid7()), str(uuid7())
    orphan = {"id": orphan_id, "parent_run_id": str(uuid7()), "name": "o", "run_type": "chain"}
    child = {"id": child_id, "parent_run_id": orphan_id, "name": "c", "run_type": "tool"}
    for run in (child, orphan) if is_child_first else (orphan, child):
        api.post("/runs", run)
    time_machine.move_to(datetime.now(UTC) + timedelta(minutes=16))

    maintenance.retry_deferred_operations()

    assert read_run(workspace, orphan_id).row.is_root
    assert read_run(workspace, child_id).row.parent_run_ids == [UUID(orphan_id)]


def test_orphan_whose_project_is_deleted_is_counted_as_rejected(workspace, api, time_machine):
    project = Project(workspace=workspace, name="gone")
    project.save()
    orphan = {
        "id": str(uuid7()),
        "parent_run_id": str(uuid7()),
        "name": "o",
        "run_type": "chain",
        "session_id": str(project.pk),
    }
    assert api.post("/runs", orphan).status_code == 202
    project.delete()
    time_machine.move_to(datetime.now(UTC) + timedelta(minutes=16))

    maintenance.retry_deferred_operations()

    log = api.get("/v1/platform/ingest-log").json()
    assert (log["hours"][0]["reasons"], log["waiting"]) == ({"no_project": 1}, 0)


def test_an_operation_that_is_deferred_again_keeps_its_age(workspace, api, time_machine):
    parent_id, child_id = str(uuid7()), str(uuid7())
    project = Project(workspace=workspace, name="gone")
    project.save()
    child = {"id": child_id, "parent_run_id": parent_id, "name": "c", "run_type": "tool"}
    api.post("/runs", child | {"session_id": str(project.pk)})
    api.patch(f"/runs/{child_id}", UPDATE)
    update = DeferredOperation.objects.for_workspace(workspace).get(is_update=True)
    project.delete()
    time_machine.move_to(datetime.now(UTC) + timedelta(minutes=16))

    maintenance.retry_deferred_operations()  # rejects the child, for which the update waits

    (deferred,) = DeferredOperation.objects.for_workspace(workspace)
    assert (deferred.run_id, deferred.created_at) == (UUID(child_id), update.created_at)


def test_unknown_run_type_is_rejected(api):
    response = api.post("/runs", {"name": "x", "run_type": "agent"})

    assert response.status_code == 422
    assert "chain" in response.json()["detail"]


def test_root_with_another_trace_id_is_rejected(api):
    run = wire_run()
    other = wire_run(parent=run)

    response = api.post("/runs", run | {"dotted_order": other["dotted_order"]})

    assert response.status_code == 400
    assert response.json()["code"] == "dotted_order_refused"
    assert count_stored_runs() == 0
