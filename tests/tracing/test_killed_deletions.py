"""Deletions whose process is killed in their middle: nothing is half there, and they end."""

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
from apps.tracing.services import delete_project, deletion, ensure_project, maintenance
from tests.child_output import read_line
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ingest, rows, wire_run

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True, serialized_rollback=False),
    pytest.mark.xdist_group("machine"),
]
RUNS, BATCH = 30, 8

# Says when a batch is gone and when the next one has gone too but is not yet committed.
WORKER = """
import sys, threading, django
django.setup()
from uuid import UUID
from apps.tracing.services import deletion, maintenance
from apps.trace_store.postgres.writing import delete_runs
for delete in (delete_runs.delete_trace_runs, delete_runs.delete_project_runs):
    delete.__kwdefaults__["limit"] = delete_runs.BATCH_SIZE = int(sys.argv[2])
done, forget = [], deletion.remove_related_rows
def counted(workspace_id, removed):
    found = forget(workspace_id, removed)
    done.append(removed)
    print(len(done), flush=True)
    if len(done) == 2:
        threading.Event().wait()
    return found
deletion.remove_related_rows = counted
if sys.argv[1]:
    deletion.process_deletion(UUID(sys.argv[1]))
else:
    maintenance.remove_deleted_projects()
"""


@pytest.fixture
def workspace():
    return WorkspaceFactory()


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


@pytest.fixture
def trace(workspace, project):
    """A trace of many runs, each with feedback; the ids of all its runs."""
    root = wire_run(inputs={"a": "said"})
    children = [wire_run(parent=root, outputs={"b": "said"}) for _ in range(RUNS - 1)]
    ingest(workspace, root, *children)
    ids = [run["id"] for run in (root, *children)]
    for run_id in ids:
        Feedback(
            workspace=workspace, project=project, run_id=run_id, trace_id=ids[0], key="k"
        ).save()
    return ids


def killed_in_its_second_batch(deletion_id: UUID | None, data_dir) -> None:
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


def nothing_is_half_there(api, project, ids):
    """The reader meets none of the runs; what is left of them has everything that belongs to it."""
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


def nothing_is_left(workspace):
    assert rows() == 0
    assert not Feedback.objects.for_workspace(workspace).exists()


def test_a_deletion_by_id_is_ended_by_the_next_worker(api, workspace, project, trace, tmp_path):
    asked = TraceDeletion(workspace=workspace, project=project, trace_ids=[trace[0]])
    asked.save()

    killed_in_its_second_batch(asked.pk, tmp_path)

    nothing_is_half_there(api, project, trace)
    deletion.continue_deletions()
    asked.refresh_from_db()
    assert (asked.status, asked.removed_runs) == ("done", RUNS)
    nothing_is_left(workspace)


def test_the_deletion_of_a_project_is_ended_by_the_next_worker(
    api, workspace, project, trace, tmp_path
):
    delete_project(project=project)

    killed_in_its_second_batch(None, tmp_path)

    nothing_is_half_there(api, project, trace)
    assert api.get(f"/sessions/{project.pk}").status_code == 404
    maintenance.remove_deleted_projects()
    assert not Project.objects.for_workspace(workspace).filter(pk=project.pk).exists()
    nothing_is_left(workspace)
