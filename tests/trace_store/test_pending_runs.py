"""Each request adds a row of pending runs in the transaction that stores its runs."""

from __future__ import annotations

from uuid import UUID

from django.db import connection

from apps.core.ids import uuid7
from tests.factories.tracing import end_fields, read_run, start_fields, wire_run


def read_pending(workspace):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run_ids, project_ids, trace_ids, partition_time FROM trace_store_pending_run"
            " WHERE workspace_id = %s ORDER BY id",
            [workspace.pk],
        )
        return [sorted(zip(*row, strict=True)) for row in cursor.fetchall()]


def pending_entry(workspace, run_id):
    row = read_run(workspace, run_id).row
    return row.id, row.project_id, row.trace_id, row.partition_time


def test_a_request_enqueues_each_changed_run_once(api, workspace):
    root = wire_run()
    child = wire_run(parent=root)
    api.post("/runs/batch", {"post": [start_fields(root), child], "patch": [end_fields(root)]})
    api.post("/runs/batch", {"patch": [end_fields(root)]})

    assert read_pending(workspace) == [
        sorted([pending_entry(workspace, root["id"]), pending_entry(workspace, child["id"])]),
        [pending_entry(workspace, root["id"])],
    ]


def test_a_request_enqueues_the_deferred_runs_that_it_applies(api, workspace):
    parent, waiting = wire_run(), str(uuid7())
    child = {"id": waiting, "parent_run_id": parent["id"], "name": "c", "run_type": "tool"}
    api.post("/runs", child)
    assert read_pending(workspace) == []

    api.post("/runs/batch", {"post": [parent]})

    enqueued = {run[0] for entry in read_pending(workspace) for run in entry}
    assert enqueued == {UUID(parent["id"]), UUID(waiting)}


def test_a_request_without_a_valid_run_enqueues_nothing(api, workspace):
    api.post("/runs/batch", {"post": [wire_run(run_type="guess")]})

    assert read_pending(workspace) == []
