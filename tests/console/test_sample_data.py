"""Sample data: recorded traces that are loaded and removed by one button, and the next steps."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.console import sample_data
from apps.console.first_steps import COOKIE
from apps.trace_store import RunQuery, Status, run_store
from apps.tracing.models import Project
from apps.tracing.services import ensure_project
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import read_run, stored_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def address(workspace):
    return f"/o/{workspace.pk}/start"


def roots_of(project):
    query = RunQuery(project_ids=[project.pk], is_root=True)
    return [run.row for run in run_store.query(project.workspace_id, query, limit=50).runs]


def test_sample_data_is_loaded_once_and_removed_by_a_click(page, workspace, address):
    assert "Load sample data" in page.get(address).text

    response = page.post(f"{address}/sample")
    page.post(f"{address}/sample")

    project = sample_data.find_sample_project(workspace.pk)
    assert response["Location"] == f"/o/{workspace.pk}/projects/p/{project.pk}"
    rows = roots_of(project)
    assert len(rows) == 10
    assert {row.name for row in rows} == {"concierge"}
    assert [row.status for row in rows].count(Status.ERROR) == 1
    assert [row.thread_key for row in rows].count("visit-3") == 3
    assert timezone.now() - rows[0].start_time < timedelta(minutes=10)
    assert all(row.end_time for row in rows)
    listed = page.get(response["Location"]).text
    assert "Remove the sample data" in listed
    assert "Remove it" in page.get(address).text

    removed = page.post(f"{address}/sample", {"action": "remove"})

    assert removed["Location"] == f"/o/{workspace.pk}"
    assert sample_data.find_sample_project(workspace.pk) is None
    page.post(f"{address}/sample")
    assert len(roots_of(sample_data.find_sample_project(workspace.pk))) == 10


def test_waiting_and_failed_runs_of_the_sample_data_are_told_apart(workspace):
    project = sample_data.load_sample_data(workspace.pk)

    query = RunQuery(project_ids=[project.pk])
    rows = [run.row for run in run_store.query(workspace.pk, query, limit=200).runs]

    assert len(rows) == 85
    assert {row.name for row in rows if row.status == Status.INTERRUPTED} == {"tools", "send_mail"}
    assert "GraphRecursionError" in next(
        row.error_preview for row in rows if row.status == Status.ERROR
    )


def test_a_project_of_the_user_with_the_name_is_neither_filled_nor_removed(
    page, workspace, address
):
    own = ensure_project(workspace.pk, sample_data.PROJECT_NAME)

    response = page.post(f"{address}/sample")
    page.post(f"{address}/sample", {"action": "remove"})

    assert response["Location"] == address
    assert "Another project is named" in page.get(address).text
    assert roots_of(own) == []
    assert Project.objects.for_workspace(workspace.pk).present().filter(pk=own.pk).exists()


def test_readers_and_outsiders_load_nothing(workspace, address):
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    outsider = signed_in(create_workspace_user(WorkspaceFactory(), "admin"))

    assert viewer.post(f"{address}/sample").status_code == 403
    assert outsider.post(f"{address}/sample").status_code == 404
    assert "Load sample data" not in viewer.get(address).text
    assert sample_data.find_sample_project(workspace.pk) is None


def test_an_empty_workspace_opens_the_start_page_until_it_is_closed(page, workspace, address):
    projects = f"/o/{workspace.pk}/projects"
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    assert page.get("/")["Location"] == address
    assert page.get(f"/o/{workspace.pk}")["Location"] == address
    assert viewer.get("/")["Location"] == projects
    sample_data.load_sample_data(workspace.pk)
    assert page.get("/")["Location"] == address

    closed = page.get(f"/o/{workspace.pk}", {"close": "1"})
    assert closed["Location"] == projects
    assert page.get("/")["Location"] == projects

    other = signed_in(create_workspace_user(workspace, "editor"))
    assert other.get("/")["Location"] == address
    stored_run(workspace)
    assert other.get("/")["Location"] == projects


def test_next_steps_tick_themselves_until_they_are_closed(page, workspace, address):
    run_id = stored_run(workspace, name="desk")
    project = f"/o/{workspace.pk}/projects/p/{read_run(workspace, run_id).row.project_id}"
    assert page.get(project).text.count("is-done") == 0
    assert "Next steps" in page.get(project).text

    scored = page.get(f"{address}/steps", {"step": "score"})
    assert scored["Location"].endswith(f"/r/{run_id}?view=tree#run-tab-feedback")
    assert page.get(project).text.count("is-done") == 0

    opened = page.get(f"{address}/steps")

    assert opened["Location"].endswith(str(run_id))
    assert page.get(project).text.count('class="is-done"') == 1
    closed = page.post(f"{address}/steps", {"next": project})
    assert closed["Location"] == project
    assert page.cookies[COOKIE].value == "closed"
    assert "Next steps" not in page.get(project).text
    assert page.post(f"{address}/steps", {"next": "//evil.example"})["Location"] == "/"


def test_older_workspaces_and_readers_have_no_next_steps(page, workspace):
    run_id = stored_run(workspace)
    project = f"/o/{workspace.pk}/projects/p/{read_run(workspace, run_id).row.project_id}"
    viewer = signed_in(create_workspace_user(workspace, "viewer"))
    assert "Next steps" not in viewer.get(project).text

    workspace.created_at = timezone.now() - timedelta(days=15)
    workspace.save()

    assert "Next steps" not in page.get(project).text
