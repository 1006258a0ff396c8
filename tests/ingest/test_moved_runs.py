"""A run id is one run per project: an operation with another time moves the stored run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection

from apps.core.ids import uuid7
from apps.trace_store import Payload, run_store
from apps.tracing.models import Project
from tests.factories.tracing import count_stored_runs, end_fields, read_run, wire_run

NOW = datetime.now(UTC) - timedelta(minutes=1)
EARLIER = [NOW - timedelta(seconds=2), NOW - timedelta(hours=20), NOW - timedelta(days=20)]


def process_pending():
    while run_store.process_pending():
        pass


def read_names(api, project_id, **body):
    runs = api.post("/runs/query", {"session": [str(project_id)]} | body).json()["runs"]
    return [run["name"] for run in runs]


@pytest.mark.parametrize("make_id", [uuid7, uuid4])
@pytest.mark.parametrize("earlier", EARLIER, ids=["seconds", "hours", "weeks"])
@pytest.mark.parametrize("is_processed", [False, True], ids=["unprocessed", "processed"])
def test_a_second_create_with_another_time_moves_the_run(
    api, workspace, make_id, earlier, is_processed
):
    run_id = make_id()
    first = wire_run(id=run_id, start=earlier, extra={"metadata": {"attempt": 1, "kept": True}})
    api.post("/runs/batch", {"post": [first]})
    if is_processed:
        process_pending()

    second = wire_run(id=run_id, start=NOW, outputs={"answer": "again"})
    api.post("/runs/batch", {"post": [second]})
    api.post("/runs/batch", {"patch": [end_fields(second)]})
    process_pending()

    run = read_run(workspace, run_id)
    assert count_stored_runs() == 1
    assert run.row.dotted_order == second["dotted_order"]
    assert run.row.start_time == run.row.partition_time == NOW
    assert json.loads(run.json(Payload.OUTPUTS)) == {"answer": "again"}
    assert json.loads(run.row.metadata_json) == {"attempt": 1, "kept": True}
    stats = run_store.project_stats(workspace.pk, [run.row.project_id])[run.row.project_id]
    assert (stats.run_count, stats.trace_count) == (1, 1)


def test_statistics_lists_and_search_have_a_moved_run_once(api, workspace):
    run_id = uuid4()
    api.post("/runs/batch", {"post": [wire_run(id=run_id, start=EARLIER[1], name="moved")]})
    process_pending()
    run_store.rebuild_rollups()
    api.post("/runs/batch", {"post": [wire_run(id=run_id, start=NOW, name="moved")]})
    process_pending()
    run_store.rebuild_rollups()
    project_id = Project.objects.for_workspace(workspace).get().pk

    since = (NOW - timedelta(days=30)).isoformat()
    stats = api.post("/runs/stats", {"session": [str(project_id)], "start_time": since}).json()
    assert stats["run_count"] == 1
    assert read_names(api, project_id, start_time=since) == ["moved"]
    assert read_names(api, project_id, start_time=since, filter='search("because")') == ["moved"]
    before = {"start_time": since, "end_time": (NOW - timedelta(hours=1)).isoformat()}
    assert read_names(api, project_id, **before) == []


def test_the_runs_below_a_moved_run_follow_it(api, workspace):
    root = wire_run(start=EARLIER[1], name="root")
    child = wire_run(root, start=EARLIER[1], name="child")
    grandchild = wire_run(child, start=EARLIER[1], name="grandchild")
    api.post("/runs/batch", {"post": [root, child, grandchild]})

    moved_root = wire_run(id=root["id"], start=NOW, name="root")
    api.post("/runs/batch", {"post": [moved_root]})

    rows = run_store.fetch_trace(workspace.pk, UUID(root["id"]))
    assert [(row.name, row.depth) for row in rows] == [("root", 0), ("child", 1), ("grandchild", 2)]
    assert all(row.dotted_order.startswith(moved_root["dotted_order"]) for row in rows)

    # A retry sends the whole trace again with new times.
    moved_child = wire_run(moved_root, id=child["id"], start=NOW, name="child")
    api.post("/runs/batch", {"post": [moved_root, moved_child]})

    rows = run_store.fetch_trace(workspace.pk, UUID(root["id"]))
    assert [(row.name, row.depth) for row in rows] == [("root", 0), ("child", 1), ("grandchild", 2)]
    assert rows[2].dotted_order.startswith(moved_child["dotted_order"])
    assert count_stored_runs() == 3


def test_a_run_moved_to_another_trace_leaves_the_first(api, workspace):
    first, second = wire_run(name="first"), wire_run(name="second")
    child = wire_run(first, name="child")
    grandchild = wire_run(child, name="grandchild")
    api.post("/runs/batch", {"post": [first, second, child, grandchild]})

    moved = wire_run(second, id=child["id"], start=NOW, name="child")
    api.post("/runs/batch", {"patch": [moved]})

    assert [row.name for row in run_store.fetch_trace(workspace.pk, UUID(first["id"]))] == ["first"]
    names = [row.name for row in run_store.fetch_trace(workspace.pk, UUID(second["id"]))]
    assert names == ["second", "child", "grandchild"]


def test_one_run_in_two_projects_is_two_runs(api, workspace):
    run_id = uuid7()
    for name in ("one", "other"):
        api.post("/runs/batch", {"post": [wire_run(id=run_id, session_name=name)]})
    api.post("/runs/batch", {"post": [wire_run(id=run_id, session_name="one", start=NOW)]})

    projects = Project.objects.for_workspace(workspace)
    for name in ("one", "other"):
        stats = run_store.project_stats(workspace.pk, [projects.get(name=name).pk])
        assert [row.run_count for row in stats.values()] == [1]
    assert count_stored_runs() == 2


def test_two_creates_of_one_request_with_different_times_are_one_run(api, workspace):
    run_id = uuid7()
    runs = [wire_run(id=run_id, start=start) for start in (EARLIER[1], NOW)]

    assert api.post("/runs/batch", {"post": runs}).status_code == 202

    assert count_stored_runs() == 1
    assert read_run(workspace, run_id).row.start_time == NOW


def test_a_deleted_run_can_be_sent_again_with_another_time(api, workspace):
    run = wire_run(start=EARLIER[1])
    api.post("/runs/batch", {"post": [run]})
    row = read_run(workspace, run["id"]).row
    run_store.delete_traces(workspace.pk, row.project_id, [row.trace_id])

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trace_store_run_key")
        assert cursor.fetchone() == (0,)

    api.post("/runs/batch", {"post": [wire_run(id=run["id"], start=NOW)]})
    assert count_stored_runs() == 1
