"""What each request leaves for the settler: a row in the transaction of its runs."""

from __future__ import annotations

from uuid import UUID

from django.db import connection

from apps.core.ids import uuid7
from tests.factories.tracing import begun, ended, read, wire_run


def unsettled(workspace):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run_ids, project_ids, trace_ids, partition_time FROM trace_store_pending_run"
            " WHERE workspace_id = %s ORDER BY id",
            [workspace.pk],
        )
        return [sorted(zip(*row, strict=True)) for row in cursor.fetchall()]


def touched(workspace, run_id):
    row = read(workspace, run_id).row
    return row.id, row.project_id, row.trace_id, row.partition_time


def test_a_request_names_each_run_it_touched_once(api, workspace):
    root = wire_run()
    child = wire_run(parent=root)
    api.post("/runs/batch", {"post": [begun(root), child], "patch": [ended(root)]})
    api.post("/runs/batch", {"patch": [ended(root)]})

    assert unsettled(workspace) == [
        sorted([touched(workspace, root["id"]), touched(workspace, child["id"])]),
        [touched(workspace, root["id"])],
    ]


def test_what_a_request_sets_free_is_named_too(api, workspace):
    parent, waiting = wire_run(), str(uuid7())
    child = {"id": waiting, "parent_run_id": parent["id"], "name": "c", "run_type": "tool"}
    api.post("/runs", child)
    assert unsettled(workspace) == []

    api.post("/runs/batch", {"post": [parent]})

    assert [row[0][0] for row in unsettled(workspace)] == [UUID(parent["id"]), UUID(waiting)]


def test_a_request_without_a_good_run_leaves_nothing(api, workspace):
    api.post("/runs/batch", {"post": [wire_run(run_type="guess")]})

    assert unsettled(workspace) == []
