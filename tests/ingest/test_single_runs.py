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
from tests.factories.tracing import ingest, read, rows, stored_run, wire_run

SOON = {"end_time": "2026-01-02T03:04:06Z", "outputs": {"answer": "because"}}


@pytest.mark.parametrize("method", ["post", "patch"])
def test_anonymous_request_is_rejected(client, db, method):
    path = "/runs" if method == "post" else f"/runs/{uuid7()}"

    assert getattr(client, method)(path, {}, content_type="application/json").status_code == 401


def test_read_only_key_is_rejected(api_of, workspace):
    reader = api_of(workspace, "read")

    assert reader.post("/runs", wire_run()).status_code == 403
    assert reader.patch(f"/runs/{uuid7()}", SOON).status_code == 403
    assert rows() == 0
    assert not DeferredOperation.objects.for_workspace(workspace).exists()


def test_a_strangers_update_does_not_reach_the_run(api_of, workspace, stranger):
    run_id = stored_run(workspace)
    before = read(workspace, run_id)

    response = api_of(stranger).patch(f"/runs/{run_id}", {"outputs": {"answer": "stolen"}})

    assert response.status_code == 202  # as for any run that is not stored yet
    assert read(workspace, run_id) == before


def test_run_without_id_or_position_gets_both(api, workspace):
    response = api.post("/runs", {"name": "x", "run_type": "chain", "inputs": {"a": 1}})

    assert response.status_code == 202
    row = read(workspace, response.json()["id"]).row
    assert row.trace_id == row.id
    assert row.is_root
    assert row.status == Status.PENDING
    assert Project.objects.for_workspace(workspace).get(pk=row.project_id).name == "default"


def test_a_time_without_a_zone_is_utc_and_a_number_is_milliseconds(api, workspace):
    naive = api.post(
        "/runs", {"name": "x", "run_type": "llm", "start_time": "2026-01-02T03:04:05.000006"}
    )
    number = api.post("/runs", {"name": "x", "run_type": "llm", "start_time": 1767323045250})

    at = [read(workspace, r.json()["id"]).row.start_time for r in (naive, number)]
    assert at[0] == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert at[1] == datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC)


def test_repeat_without_position_does_not_create_a_second_run(api):
    body = {"id": str(uuid7()), "name": "x", "run_type": "chain"}

    for _ in range(2):
        assert api.post("/runs", body).status_code == 202

    assert rows() == 1


def test_a_bare_update_finds_its_run(api, workspace):
    run = wire_run(end_time=None, outputs=None, session_name="somewhere")
    ingest(workspace, run)

    assert api.patch(f"/runs/{run['id']}", SOON).status_code == 202

    stored = read(workspace, run["id"])
    assert stored.value(Payload.OUTPUTS) == {"answer": "because"}
    assert rows() == 1


def test_update_without_position_is_deferred_until_its_run_is_stored(api, workspace):
    run = wire_run(end_time=None, outputs=None)

    assert api.patch(f"/runs/{run['id']}", SOON).status_code == 202
    assert rows() == 0
    assert api.post("/runs", run).status_code == 202

    stored = read(workspace, run["id"])
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
    assert rows() == 0

    api.post("/runs", parent)

    assert rows() == 3
    assert read(workspace, grandchild_id).row.parent_run_ids == [
        UUID(parent["id"]),
        UUID(child_id),
    ]


def test_deferred_operation_ignores_runs_of_another_workspace(api_of, workspace, stranger):
    run = wire_run()
    api_of(stranger).patch(f"/runs/{run['id']}", {"outputs": {"answer": "planted"}})

    api_of(workspace).post("/runs", run)

    assert read(workspace, run["id"]).value(Payload.OUTPUTS) == {"answer": "because"}
    assert DeferredOperation.objects.for_workspace(stranger).count() == 1


def test_deferred_update_is_retried_when_its_run_exists(workspace, api, time_machine):
    run = wire_run(end_time=None, outputs=None)
    api.patch(f"/runs/{run['id']}", SOON)
    (held,) = DeferredOperation.objects.for_workspace(workspace)
    DeferredOperation.objects.for_workspace(workspace).delete()
    ingest(workspace, run)
    held.save(force_insert=True)  # as if both had committed in the same moment
    time_machine.move_to(datetime.now(UTC) + timedelta(seconds=10))

    maintenance.retry_deferred_operations()

    assert read(workspace, run["id"]).row.status == Status.SUCCESS
    assert not DeferredOperation.objects.for_workspace(workspace).exists()


def test_child_without_parent_becomes_a_root(workspace, api, time_machine):
    child_id = str(uuid7())
    api.post(
        "/runs", {"id": child_id, "parent_run_id": str(uuid7()), "name": "c", "run_type": "tool"}
    )
    time_machine.move_to(datetime.now(UTC) + timedelta(minutes=16))

    maintenance.retry_deferred_operations()
    maintenance.retry_deferred_operations()

    assert read(workspace, child_id).row.is_root
    assert rows() == 1


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
    assert rows() == 0
