"""/sessions."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.tracing.models import Feedback, Project
from apps.tracing.services import ensure_default_project, upkeep
from tests.factories.tracing import ProjectFactory, ingest, rows, stored_run, wire_run


def names(response):
    assert response.status_code == 200, response.content
    return [project["name"] for project in response.json()]


@pytest.mark.parametrize("method", ["get", "post", "patch", "delete"])
def test_anonymous_is_refused(client, db, method):
    path = "/sessions" if method in {"get", "post"} else f"/sessions/{ProjectFactory().pk}"

    response = getattr(client, method)(path, content_type="application/json")

    assert response.status_code == 401


@pytest.mark.parametrize("method", ["get", "patch", "delete"])
def test_a_stranger_finds_nothing(api, stranger, method):
    theirs = ProjectFactory(workspace=stranger, name="sentinel")
    arguments = [{"name": "taken over"}] if method == "patch" else []

    assert getattr(api, method)(f"/sessions/{theirs.pk}", *arguments).status_code == 404

    assert "sentinel" not in names(api.get("/sessions"))
    assert names(api.get("/sessions", id=str(theirs.pk))) == []
    theirs.refresh_from_db()
    assert (theirs.name, theirs.deleted_at) == ("sentinel", None)


def test_a_key_that_only_reads_changes_nothing(api_of, workspace):
    project = ProjectFactory(workspace=workspace, name="before")
    reader = api_of(workspace, "read")

    assert reader.post("/sessions", {"name": "x"}).status_code == 403
    assert reader.patch(f"/sessions/{project.pk}", {"name": "x"}).status_code == 403
    assert reader.delete(f"/sessions/{project.pk}").status_code == 403
    assert [p.name for p in Project.objects.for_workspace(workspace)] == ["before"]


def test_a_new_workspace_has_its_default_project(api, workspace):
    (project,) = api.get("/sessions", limit=1).json()

    assert project["name"] == "default"
    assert project["tenant_id"] == str(workspace.pk)
    assert project["reference_dataset_id"] is None
    assert project["start_time"].endswith("Z")
    assert project["run_count"] == 0


def test_a_project_is_made_and_read(api):
    made = api.post("/sessions", {"name": "p", "extra": {"metadata": {"a": 1}}})

    assert made.status_code == 200
    got = api.get(f"/sessions/{made.json()['id']}").json()
    assert got == made.json()
    assert (got["name"], got["extra"]) == ("p", {"metadata": {"a": 1}})


def test_a_name_is_taken_once(api, workspace):
    api.post("/sessions", {"name": "p"})

    again = api.post("/sessions", {"name": "p"})

    assert again.status_code == 409
    assert "already exists" in again.json()["detail"]
    assert Project.objects.for_workspace(workspace).filter(name="p").count() == 1


def test_upsert_returns_the_one_that_is_there(api):
    first = api.post("/sessions", {"name": "p", "description": "before"}).json()

    second = api.post("/sessions?upsert=true", {"name": "p", "description": "after"}).json()

    assert second["id"] == first["id"]
    assert second["description"] == "after"


def test_a_repeat_with_the_clients_id_is_the_same_project(api):
    body = {"id": str(uuid4()), "name": "experiment", "reference_dataset_id": str(uuid4())}

    first, second = api.post("/sessions", body), api.post("/sessions", body)

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["id"] == second.json()["id"] == body["id"]


def test_a_foreign_id_is_not_confirmed_as_what_it_is(api, stranger):
    theirs = ProjectFactory(workspace=stranger, name="sentinel")

    response = api.post("/sessions", {"id": str(theirs.pk), "name": "mine"})

    assert response.status_code == 409
    assert "sentinel" not in response.content.decode()


def test_a_missing_name_is_made_up(api):
    assert api.post("/sessions", {}).json()["name"].startswith("project-")


def test_only_given_fields_change(api):
    project = api.post("/sessions", {"name": "p", "description": "d", "extra": {"a": 1}}).json()

    changed = api.patch(
        f"/sessions/{project['id']}",
        {"end_time": "2026-01-02T03:04:05", "extra": None, "name": None, "description": None},
    ).json()

    assert changed["end_time"] == "2026-01-02T03:04:05Z"
    assert (changed["description"], changed["extra"]) == ("d", {"a": 1})


def test_renaming_to_a_taken_name_is_refused(api, workspace):
    ProjectFactory(workspace=workspace, name="taken")
    project = ProjectFactory(workspace=workspace, name="mine")

    assert api.patch(f"/sessions/{project.pk}", {"name": "taken"}).status_code == 409


def test_lists_are_limited_offset_and_counted(api, workspace):
    for n in range(5):
        ProjectFactory(workspace=workspace, name=f"p{n}")
    ensure_default_project(workspace.pk)

    first = api.get("/sessions", limit=4, sort_by="name", sort_by_desc="False")
    second = api.get("/sessions", limit=4, offset=4, sort_by="name", sort_by_desc="false")
    third = api.get("/sessions", limit=4, offset=8)

    assert names(first) + names(second) == ["default", "p0", "p1", "p2", "p3", "p4"]
    assert names(third) == []
    assert {r["X-Pagination-Total"] for r in (first, second, third)} == {"6"}


def test_filters_limit(api, workspace):
    dataset = uuid4()
    ProjectFactory(workspace=workspace, name="100%", extra={"metadata": {"k": "v", "l": 1}})
    ProjectFactory(workspace=workspace, name="trial", reference_dataset_id=dataset)

    assert names(api.get("/sessions", name="trial")) == ["trial"]
    assert names(api.get("/sessions", name="tri")) == []
    assert names(api.get("/sessions", name_contains="TRI")) == ["trial"]
    assert names(api.get("/sessions", name_contains="%")) == ["100%"]
    assert names(api.get("/sessions", reference_dataset=str(dataset))) == ["trial"]
    assert set(names(api.get("/sessions", reference_free="True"))) == {"100%", "default"}
    assert names(api.get("/sessions", metadata='{"k": "v"}')) == ["100%"]


def test_counts_follow_the_runs(api, workspace):
    root = wire_run(session_name="p")
    ingest(workspace, root, wire_run(parent=root))
    ingest(workspace, root)

    (project,) = api.get("/sessions", name="p").json()

    assert project["run_count"] == 2
    assert project["last_run_start_time"] is not None


def test_compaction_keeps_the_sums(api, workspace):
    for _ in range(3):
        stored_run(workspace, session_name="p")
    before = api.get("/sessions", name="p").json()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tracing_ingestcount SET hour = hour - interval '2 hours'")

    upkeep.compact_counts()

    assert api.get("/sessions", name="p").json() == before
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tracing_ingestcount")
        assert cursor.fetchone() == (1,)


def test_a_deleted_project_is_gone_with_all_that_was_in_it(api, workspace):
    kept = stored_run(workspace, session_name="kept")
    stored_run(workspace, session_name="gone")
    project = Project.objects.for_workspace(workspace).get(name="gone")
    Feedback(workspace=workspace, project=project, key="k").save()

    assert api.delete(f"/sessions/{project.pk}").status_code == 202
    assert api.get(f"/sessions/{project.pk}").status_code == 404
    assert names(api.get("/sessions", name="gone")) == []
    assert api.post("/sessions", {"name": "gone"}).status_code == 200
    upkeep.remove_deleted_projects()

    assert not Project.unscoped.filter(pk=project.pk).exists()
    assert not Feedback.objects.for_workspace(workspace).exists()
    assert rows() == 1
    assert api.get(f"/runs/{kept}").status_code == 200


def test_a_list_costs_the_same_number_of_queries_at_any_length(api, workspace):
    def queries():
        with CaptureQueriesContext(connection) as captured:
            api.get("/sessions")
        return len(captured)

    ensure_default_project(workspace.pk)
    queries()  # the key is known from now on
    few = queries()
    for _ in range(5):
        ProjectFactory(workspace=workspace)

    assert queries() == few
