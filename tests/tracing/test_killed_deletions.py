"""Deletions whose process is killed in the middle leave no partial run, and are finished later."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection

from apps.feedback.models import Feedback
from apps.tracing.models import Project, TraceDeletion
from apps.tracing.services import delete_project, deletion
from tests.child_output import read_line
from tests.factories.tracing import count_stored_runs, ingest, wire_run

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True, serialized_rollback=False),
]
RUNS, BATCH = 30, 8

# Prints a line per deleted batch and blocks before the second batch is committed.
WORKER = """
import sys, threading, django
django.setup()
from uuid import UUID
from apps.tracing.services import deletion
from apps.trace_store.postgres.writing import delete_runs
delete_runs.BATCH_SIZE = int(sys.argv[2])
batches, delete_related_rows = [], delete_runs.delete_related_rows
def count_batch(relation, params):
    delete_related_rows(relation, params)
    batches.append(params)
    print(len(batches), flush=True)
    if len(batches) == 2:
        threading.Event().wait()
delete_runs.delete_related_rows = count_batch
if sys.argv[1]:
    deletion.process_deletion(UUID(sys.argv[1]))
else:
    deletion.remove_deleted_projects()
"""


@pytest.fixture
def trace(workspace, project):
    """The ids of the runs of a trace of many runs, each with feedback."""
    root = wire_run(inputs={"a": "text"})
    children = [wire_run(parent=root, outputs={"b": "text"}) for _ in range(RUNS - 1)]
    ingest(workspace, root, *children)
    ids = [run["id"] for run in (root, *children)]
    for run_id in ids:
        Feedback(
            workspace=workspace, project=project, run_id=run_id, trace_id=ids[0], key="k"
        ).save()
    return ids


def kill_in_second_batch(deletion_id: UUID | None, data_dir) -> None:
    database = connection.settings_dict
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(deletion_id or ""), str(BATCH)],
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DATABASE_URL": f"postgresql://{database['USER']}@/{database['NAME']}"
            f"?host={database['HOST']}",
            "REDIS_URL": settings.REDIS_URL,
            "DATA_DIR": str(data_dir),
        },
        stdout=subprocess.PIPE,
    )
    with process.stdout:
        try:
            assert [read_line(process.stdout) for _ in range(2)] == [b"1\n", b"2\n"]
        finally:
            process.kill()
            process.wait(30)


def assert_no_partial_runs(api, project, ids):
    """No API returns the runs; the remaining rows still have their payload and feedback."""
    body = {"session": [str(project.pk)]}
    assert api.post("/runs/query", body).json()["runs"] == []
    assert api.post("/runs/query", {"trace": ids[0]} | body).json()["runs"] == []
    assert api.post("/runs/query", {"id": ids}).json()["runs"] == []
    assert {api.get(f"/runs/{run_id}").status_code for run_id in ids} == {404}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), count(p.id), count(f.id) FROM trace_store_run r"
            " LEFT JOIN trace_store_run_payload p ON p.id = r.id"
            " LEFT JOIN feedback_feedback f ON f.run_id = r.id"
        )
        assert cursor.fetchone() == (RUNS - BATCH, RUNS - BATCH, RUNS - BATCH)


def assert_all_deleted(workspace):
    assert count_stored_runs() == 0
    assert not Feedback.objects.for_workspace(workspace).exists()


def test_a_killed_deletion_by_id_is_finished_by_the_next_worker(
    api, workspace, project, trace, tmp_path
):
    trace_deletion = TraceDeletion(workspace=workspace, project=project, trace_ids=[trace[0]])
    trace_deletion.save()

    kill_in_second_batch(trace_deletion.pk, tmp_path)

    assert_no_partial_runs(api, project, trace)
    deletion.continue_deletions()
    trace_deletion.refresh_from_db()
    assert (trace_deletion.status, trace_deletion.removed_runs) == ("done", RUNS)
    assert_all_deleted(workspace)


def test_a_killed_project_deletion_is_finished_by_the_next_worker(
    api, workspace, project, trace, tmp_path
):
    delete_project(project=project)

    kill_in_second_batch(None, tmp_path)

    assert_no_partial_runs(api, project, trace)
    assert api.get(f"/sessions/{project.pk}").status_code == 404
    deletion.remove_deleted_projects()
    assert not Project.objects.for_workspace(workspace).filter(pk=project.pk).exists()
    assert_all_deleted(workspace)
