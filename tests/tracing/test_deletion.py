"""Deleted traces leave no row in any table and no file in object storage."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.core.files.storage import default_storage
from django.db import connection

from apps.core.ids import uuid7
from apps.feedback.models import Feedback
from apps.trace_store import run_store
from apps.trace_store.models import PendingFileDeletion
from apps.trace_store.postgres.postprocess import processor
from apps.trace_store.postgres.writing import delete_runs
from apps.tracing.models import Share, TraceDeletion
from apps.tracing.services import deletion, upgrade_traces
from tests.factories.tracing import (
    count_stored_runs,
    ingest,
    multipart_body,
    read_run,
    stored_run,
    wire_run,
)

PICTURE = b"a picture of quetzalcoatlus"


def store_full_trace(workspace, project, api):
    """Store a trace with every kind of related row, all marked by a unique word."""
    root = wire_run(
        name="quetzalcoatlus",
        inputs={"question": "quetzalcoatlus"},
        extra={"metadata": {"thread_id": "quetzalcoatlus", "user": 7}},
        tags=["quetzalcoatlus"],
    )
    child = wire_run(parent=root, error="quetzalcoatlus")
    response = api.multipart(
        multipart_body(
            (f"post.{root['id']}", root),
            (f"post.{child['id']}", child),
            (f"attachment.{child['id']}.picture", PICTURE, "Content-Type: image/png"),
        )
    )
    assert response.status_code == 202, response.content
    upgrade_traces(workspace.pk, [UUID(root["id"])])
    Feedback.unscoped.create(
        workspace=workspace,
        project=project,
        run_id=child["id"],
        trace_id=root["id"],
        key="quetzalcoatlus",
    )
    Share.unscoped.create(
        workspace=workspace, project=project, trace_id=root["id"], run_id=root["id"]
    )
    return root, child


def tables_containing(*words):
    """Return the tables in which a word occurs, in text, JSON or bytes."""
    tables_found = set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname = 'public'"
        )
        tables = [name for (name,) in cursor.fetchall()]
        for table in tables:
            for word in words:
                for text in (word, word.encode().hex(), word.replace("-", "")):
                    cursor.execute(
                        f'SELECT count(*) FROM "{table}" t WHERE t::text ILIKE %s', [f"%{text}%"]
                    )
                    if cursor.fetchone()[0]:
                        tables_found.add(table)
    return tables_found


def list_stored_files(folder=""):
    folders, files = default_storage.listdir(folder)
    inner = [path for name in folders for path in list_stored_files(f"{folder}/{name}".lstrip("/"))]
    return [*(f"{folder}/{name}" for name in files), *inner]


def test_outsiders_and_readers_delete_nothing(
    client, make_api, workspace, other_workspace, project
):
    run_id = stored_run(workspace)
    body = {"session_id": str(project.pk), "trace_ids": [str(run_id)]}

    for path in ("/runs/delete", "/runs/delete/traces"):
        assert client.post(path, body, content_type="application/json").status_code == 401
        assert make_api(workspace, "read").post(path, body).status_code == 403
        assert make_api(other_workspace).post(path, body).status_code == 404
    assert count_stored_runs() == 1


@pytest.mark.parametrize("selected_by", ["ids", "metadata"])
def test_deleting_a_trace_removes_all_its_rows_and_files(api, workspace, project, selected_by):
    kept = stored_run(workspace, extra={"metadata": {"user": 8}})
    root, child = store_full_trace(workspace, project, api)
    processor.process_all()
    words = ("quetzalcoatlus", root["id"], child["id"])
    assert {"trace_store_run", "trace_store_run_payload", "feedback_feedback", "tracing_share"} <= (
        tables_containing(*words)
    )
    assert len(list_stored_files()) == 1
    selection = (
        {"trace_ids": [root["id"]]} if selected_by == "ids" else {"metadata": {"user": [7, "x"]}}
    )

    response = api.post("/runs/delete", {"session_id": str(project.pk), **selection})

    assert response.status_code == 202
    assert (response.json()["status"], response.json()["removed_runs"]) == ("done", 2)
    TraceDeletion.unscoped.all().delete()  # the row contains the ids
    processor.process_all()
    assert tables_containing("quetzalcoatlus") == set()
    assert tables_containing(*words) <= {"audit_entry"}  # the audit entry names the deleted traces
    assert list_stored_files() == []
    assert read_run(workspace, kept).row.id == kept
    assert api.get(f"/sessions/{project.pk}").json()["run_count"] == 1


def test_traces_with_the_same_ids_in_another_project_are_kept(api, workspace, project):
    run = wire_run()
    ingest(workspace, run)
    ingest(workspace, run | {"session_name": "replica"})

    api.post("/runs/delete", {"session_id": str(project.pk), "trace_ids": [run["id"]]})

    assert count_stored_runs() == 1
    assert read_run(workspace, run["id"]).row.project_id != project.pk


def test_a_large_deletion_continues_after_the_response(api, workspace, project, monkeypatch):
    monkeypatch.setattr(delete_runs, "BATCH_SIZE", 2)
    queued = []
    monkeypatch.setattr(deletion.dispatch, "delete_traces", queued.append)
    root = wire_run()
    ingest(workspace, root, *(wire_run(parent=root) for _ in range(9)))
    body = {"session_id": str(project.pk), "trace_ids": [root["id"]]}

    deletion_body = api.post("/runs/delete", body).json()

    assert (deletion_body["status"], count_stored_runs(), queued) == (
        "pending",
        4,
        [UUID(deletion_body["id"])],
    )
    assert deletion.process_deletion(UUID(deletion_body["id"]))
    finished = api.get(f"/runs/delete/{deletion_body['id']}").json()
    assert (finished["status"], finished["removed_runs"], count_stored_runs()) == ("done", 10, 0)


def test_traces_being_deleted_by_metadata_are_hidden_at_once(api, workspace, project, monkeypatch):
    monkeypatch.setattr(deletion, "INLINE_BATCHES", 0)
    monkeypatch.setattr(deletion.dispatch, "delete_traces", lambda _: None)
    root, child = store_full_trace(workspace, project, api)
    kept = str(stored_run(workspace, extra={"metadata": {"user": 8}}))
    processor.process_all()

    deletion_body = api.post(
        "/runs/delete", {"session_id": str(project.pk), "metadata": {"user": 7}}
    ).json()
    later = wire_run(extra={"metadata": {"user": 7}})
    ingest(workspace, later)

    assert (deletion_body["status"], deletion_body["removed_runs"], count_stored_runs()) == (
        "pending",
        0,
        4,
    )
    query = {"session": [str(project.pk)]}
    listed = {run["id"] for run in api.post("/runs/query", query).json()["runs"]}
    assert listed == {kept, later["id"]}
    assert {api.get(f"/runs/{run['id']}").status_code for run in (root, child)} == {404}
    assert api.post("/runs/query", {"trace": root["id"]}).json()["runs"] == []
    assert deletion.process_deletion(UUID(deletion_body["id"]))
    assert count_stored_runs() == 2
    finished = api.get(f"/runs/delete/{deletion_body['id']}").json()
    assert (finished["status"], finished["removed_runs"]) == ("done", 2)


def test_a_trace_larger_than_a_batch_is_deleted_whole_by_metadata(
    api, workspace, project, monkeypatch
):
    monkeypatch.setattr(delete_runs, "BATCH_SIZE", 2)
    root = wire_run(extra={"metadata": {"user": 7}})
    ingest(workspace, root, *(wire_run(parent=root) for _ in range(9)))
    trace_deletion = TraceDeletion(workspace=workspace, project=project, metadata={"user": 7})
    trace_deletion.save()

    assert deletion.process_deletion(trace_deletion.pk)

    trace_deletion.refresh_from_db()
    assert (trace_deletion.removed_runs, count_stored_runs()) == (10, 0)


def test_an_interrupted_deletion_is_continued_from_its_row(api, workspace, project):
    root, _ = store_full_trace(workspace, project, api)
    trace_deletion = TraceDeletion(workspace=workspace, project=project, trace_ids=[root["id"]])
    trace_deletion.save()

    deletion.continue_deletions()
    deletion.continue_deletions()

    trace_deletion.refresh_from_db()
    assert (trace_deletion.status, trace_deletion.removed_runs, count_stored_runs()) == (
        "done",
        2,
        0,
    )
    assert list_stored_files() == []


def test_files_of_an_interrupted_deletion_are_removed_later(api, workspace, project):
    root, _ = store_full_trace(workspace, project, api)
    run_store.delete_traces(workspace.pk, project.pk, [UUID(root["id"])])
    assert len(list_stored_files()) == 1

    run_store.delete_pending_files()

    assert list_stored_files() == []
    assert not PendingFileDeletion.unscoped.exists()


def test_a_file_is_kept_while_a_run_with_its_id_exists(api, workspace, project):
    root, child = store_full_trace(workspace, project, api)
    ingest(workspace, root | {"session_name": "replica"}, child | {"session_name": "replica"})

    api.post("/runs/delete", {"session_id": str(project.pk), "trace_ids": [root["id"]]})

    assert len(list_stored_files()) == 1


def test_a_deletion_by_metadata_keeps_runs_that_arrive_later(workspace, project):
    run = wire_run(extra={"metadata": {"user": "7"}})
    trace_deletion = TraceDeletion(workspace=workspace, project=project, metadata={"user": "7"})
    trace_deletion.save()
    ingest(workspace, run)

    deletion.process_deletion(trace_deletion.pk)

    assert count_stored_runs() == 1


@pytest.mark.parametrize(
    "selection",
    [
        {},
        {"trace_ids": []},
        {"trace_ids": ["x"]},
        {"trace_ids": [str(uuid7())], "metadata": {"a": "b"}},
        {"trace_ids": [str(uuid7()) for _ in range(1001)]},
        {"metadata": {}},
        {"metadata": {"a": []}},
        {"metadata": {"a": {"b": 1}}},
        {"metadata": "x"},
    ],
)
def test_an_invalid_selection_deletes_nothing(api, workspace, project, selection):
    stored_run(workspace)

    response = api.post("/runs/delete", {"session_id": str(project.pk), **selection})

    assert response.status_code == 422
    assert count_stored_runs() == 1
