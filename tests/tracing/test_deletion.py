"""Deleting traces: nothing of them is left in any table or in object storage."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.core.files.storage import default_storage
from django.db import connection

from apps.core.ids import uuid7
from apps.feedback.models import Feedback
from apps.trace_store.postgres.postprocess import processor
from apps.trace_store.postgres.writing import delete_runs
from apps.tracing.models import PendingFileDeletion, Share, TraceDeletion
from apps.tracing.services import deletion, ensure_project, upgrade_traces
from tests.factories.tracing import form, ingest, read, rows, stored_run, wire_run

PICTURE = b"a picture of quetzalcoatlus"


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


def tree(workspace, project, api):
    """A trace with everything that can be known about one, told by a word that nothing else has."""
    root = wire_run(
        name="quetzalcoatlus",
        inputs={"question": "quetzalcoatlus"},
        extra={"metadata": {"thread_id": "quetzalcoatlus", "user": 7}},
        tags=["quetzalcoatlus"],
    )
    child = wire_run(parent=root, error="quetzalcoatlus")
    response = api.multipart(
        form(
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


def traces_left(*words):
    """The tables in which a word occurs, in text, JSON or bytes."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname = 'public'"
        )
        tables = [name for (name,) in cursor.fetchall()]
        for table in tables:
            for word in words:
                for form_of in (word, word.encode().hex(), word.replace("-", "")):
                    cursor.execute(
                        f'SELECT count(*) FROM "{table}" t WHERE t::text ILIKE %s', [f"%{form_of}%"]
                    )
                    if cursor.fetchone()[0]:
                        found.add(table)
    return found


def stored_files(folder=""):
    folders, files = default_storage.listdir(folder)
    inner = [one for name in folders for one in stored_files(f"{folder}/{name}".lstrip("/"))]
    return [*(f"{folder}/{name}" for name in files), *inner]


def test_strangers_and_readers_delete_nothing(client, api_of, workspace, stranger, project):
    run_id = stored_run(workspace)
    body = {"session_id": str(project.pk), "trace_ids": [str(run_id)]}

    for path in ("/runs/delete", "/runs/delete/traces"):
        assert client.post(path, body, content_type="application/json").status_code == 401
        assert api_of(workspace, "read").post(path, body).status_code == 403
        assert api_of(stranger).post(path, body).status_code == 404
    assert rows() == 1


@pytest.mark.parametrize("by", ["ids", "metadata"])
def test_nothing_of_a_trace_is_left_anywhere(api, workspace, project, by):
    kept = stored_run(workspace, extra={"metadata": {"user": 8}})
    root, child = tree(workspace, project, api)
    processor.process_all()
    words = ("quetzalcoatlus", root["id"], child["id"])
    assert {"trace_store_run", "trace_store_run_payload", "feedback_feedback", "tracing_share"} <= (
        traces_left(*words)
    )
    assert len(stored_files()) == 1
    which = {"trace_ids": [root["id"]]} if by == "ids" else {"metadata": {"user": [7, "x"]}}

    response = api.post("/runs/delete", {"session_id": str(project.pk), **which})

    assert response.status_code == 202
    assert (response.json()["status"], response.json()["removed_runs"]) == ("done", 2)
    TraceDeletion.unscoped.all().delete()  # it remembers the ids
    processor.process_all()
    assert traces_left("quetzalcoatlus") == set()
    assert traces_left(*words) <= {"audit_entry"}  # it says which traces who deleted
    assert stored_files() == []
    assert read(workspace, kept).row.id == kept
    assert api.get(f"/sessions/{project.pk}").json()["run_count"] == 1


def test_traces_of_another_project_with_the_same_ids_stay(api, workspace, project):
    run = wire_run()
    ingest(workspace, run)
    ingest(workspace, run | {"session_name": "replica"})

    api.post("/runs/delete", {"session_id": str(project.pk), "trace_ids": [run["id"]]})

    assert rows() == 1
    assert read(workspace, run["id"]).row.project_id != project.pk


def test_a_large_deletion_goes_on_after_the_answer(api, workspace, project, monkeypatch):
    monkeypatch.setattr(delete_runs, "BATCH_SIZE", 2)
    monkeypatch.setattr(delete_runs.delete_trace_runs, "__kwdefaults__", {"limit": 2})
    queued = []
    monkeypatch.setattr(deletion.dispatch, "delete_traces", queued.append)
    root = wire_run()
    ingest(workspace, root, *(wire_run(parent=root) for _ in range(9)))
    body = {"session_id": str(project.pk), "trace_ids": [root["id"]]}

    answer = api.post("/runs/delete", body).json()

    assert (answer["status"], rows(), queued) == ("pending", 4, [UUID(answer["id"])])
    assert deletion.process_deletion(UUID(answer["id"]))
    done = api.get(f"/runs/delete/{answer['id']}").json()
    assert (done["status"], done["removed_runs"], rows()) == ("done", 10, 0)


def test_what_is_deleted_by_metadata_is_hidden_before_it_is_found(
    api, workspace, project, monkeypatch
):
    monkeypatch.setattr(deletion, "INLINE_BATCHES", 0)
    monkeypatch.setattr(deletion.dispatch, "delete_traces", lambda _: None)
    root, child = tree(workspace, project, api)
    kept = str(stored_run(workspace, extra={"metadata": {"user": 8}}))
    processor.process_all()

    answer = api.post(
        "/runs/delete", {"session_id": str(project.pk), "metadata": {"user": 7}}
    ).json()
    later = wire_run(extra={"metadata": {"user": 7}})
    ingest(workspace, later)

    assert (answer["status"], answer["removed_runs"], rows()) == ("pending", 0, 4)
    asked = {"session": [str(project.pk)]}
    listed = {one["id"] for one in api.post("/runs/query", asked).json()["runs"]}
    assert listed == {kept, later["id"]}
    assert {api.get(f"/runs/{one['id']}").status_code for one in (root, child)} == {404}
    assert api.post("/runs/query", {"trace": root["id"]}).json()["runs"] == []
    assert deletion.process_deletion(UUID(answer["id"]))
    assert rows() == 2
    done = api.get(f"/runs/delete/{answer['id']}").json()
    assert (done["status"], done["removed_runs"]) == ("done", 2)


def test_a_trace_larger_than_a_batch_goes_whole_though_its_word_goes_first(
    api, workspace, project, monkeypatch
):
    monkeypatch.setattr(delete_runs.delete_trace_runs, "__kwdefaults__", {"limit": 2})
    root = wire_run(extra={"metadata": {"user": 7}})
    ingest(workspace, root, *(wire_run(parent=root) for _ in range(9)))
    wanted = TraceDeletion(workspace=workspace, project=project, metadata={"user": 7})
    wanted.save()

    assert deletion.process_deletion(wanted.pk)

    wanted.refresh_from_db()
    assert (wanted.removed_runs, rows()) == (10, 0)


def test_what_was_interrupted_is_taken_up_from_its_row(api, workspace, project):
    root, _ = tree(workspace, project, api)
    lost = TraceDeletion(workspace=workspace, project=project, trace_ids=[root["id"]])
    lost.save()

    deletion.continue_deletions()
    deletion.continue_deletions()

    lost.refresh_from_db()
    assert (lost.status, lost.removed_runs, rows()) == ("done", 2, 0)
    assert stored_files() == []


def test_files_whose_removal_was_interrupted_are_removed_later(api, workspace, project):
    root, _ = tree(workspace, project, api)
    removed = delete_runs.delete_trace_runs(workspace.pk, project.pk, [UUID(root["id"])])
    deletion.remove_related_rows(workspace.pk, removed)
    assert len(stored_files()) == 1

    deletion.remove_pending_files()

    assert stored_files() == []
    assert not PendingFileDeletion.unscoped.exists()


def test_a_file_stays_while_a_run_of_that_id_is_there(api, workspace, project):
    root, child = tree(workspace, project, api)
    ingest(workspace, root | {"session_name": "replica"}, child | {"session_name": "replica"})

    api.post("/runs/delete", {"session_id": str(project.pk), "trace_ids": [root["id"]]})

    assert len(stored_files()) == 1


def test_what_came_after_the_request_for_metadata_is_not_meant(workspace, project):
    run = wire_run(extra={"metadata": {"user": "7"}})
    earlier = TraceDeletion(workspace=workspace, project=project, metadata={"user": "7"})
    earlier.save()
    ingest(workspace, run)

    deletion.process_deletion(earlier.pk)

    assert rows() == 1


@pytest.mark.parametrize(
    "which",
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
def test_a_request_that_is_not_clear_deletes_nothing(api, workspace, project, which):
    stored_run(workspace)

    response = api.post("/runs/delete", {"session_id": str(project.pk), **which})

    assert response.status_code == 422
    assert rows() == 1
