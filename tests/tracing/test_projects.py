"""/sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.trace_store import run_store
from apps.tracing.models import Project
from apps.tracing.services import (
    create_project,
    deletion,
    ensure_addressed_project,
    ensure_default_project,
)
from tests.factories.tracing import ProjectFactory, count_stored_runs, ingest, stored_run, wire_run


def project_names(response):
    assert response.status_code == 200, response.content
    return [project["name"] for project in response.json()]


@pytest.mark.parametrize("method", ["get", "post", "patch", "delete"])
def test_anonymous_is_rejected(client, db, method):
    path = "/sessions" if method in {"get", "post"} else f"/sessions/{ProjectFactory().pk}"

    response = getattr(client, method)(path, content_type="application/json")

    assert response.status_code == 401


@pytest.mark.parametrize("method", ["get", "patch", "delete"])
def test_an_outsider_finds_no_project(api, other_workspace, method):
    foreign_project = ProjectFactory(workspace=other_workspace, name="sentinel")
    arguments = [{"name": "taken over"}] if method == "patch" else []

    assert getattr(api, method)(f"/sessions/{foreign_project.pk}", *arguments).status_code == 404

    assert "sentinel" not in project_names(api.get("/sessions"))
    assert project_names(api.get("/sessions", id=str(foreign_project.pk))) == []
    foreign_project.refresh_from_db()
    assert (foreign_project.name, foreign_project.deleted_at) == ("sentinel", None)


def test_a_read_only_key_changes_nothing(make_api, workspace):
    project = ProjectFactory(workspace=workspace, name="before")
    reader = make_api(workspace, "read")

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


def test_a_project_is_created_and_read(api):
    created = api.post("/sessions", {"name": "p", "extra": {"metadata": {"a": 1}}})

    assert created.status_code == 200
    read = api.get(f"/sessions/{created.json()['id']}").json()
    assert read == created.json()
    assert (read["name"], read["extra"]) == ("p", {"metadata": {"a": 1}})


def test_a_duplicate_name_is_rejected(api, workspace):
    api.post("/sessions", {"name": "p"})

    duplicate = api.post("/sessions", {"name": "p"})

    assert duplicate.status_code == 409
    assert "already exists" in duplicate.json()["detail"]
    assert Project.objects.for_workspace(workspace).filter(name="p").count() == 1


def test_upsert_returns_the_existing_project(api):
    first = api.post("/sessions", {"name": "p", "description": "before"}).json()

    second = api.post("/sessions?upsert=true", {"name": "p", "description": "after"}).json()

    assert second["id"] == first["id"]
    assert second["description"] == "after"


@pytest.mark.parametrize("path", ["/sessions", "/v2/sessions"])
def test_a_project_of_a_dataset_that_does_not_exist_is_rejected(api, workspace, path):
    body = {"name": "experiment", "reference_dataset_id": str(uuid4())}
    if path.startswith("/v2"):
        body |= {"type": "EXPERIMENT"}

    response = api.post(path, body)

    assert (response.status_code, response.json()["code"]) == (404, "dataset_not_found")
    assert not Project.objects.for_workspace(workspace).exists()


def test_repeating_a_creation_with_an_id_returns_the_same_project(api):
    body = {"id": str(uuid4()), "name": "experiment"}

    first, second = api.post("/sessions", body), api.post("/sessions", body)

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["id"] == second.json()["id"] == body["id"]


def test_an_id_of_another_workspace_is_rejected_without_details(api, other_workspace):
    foreign_project = ProjectFactory(workspace=other_workspace, name="sentinel")

    response = api.post("/sessions", {"id": str(foreign_project.pk), "name": "mine"})

    assert response.status_code == 409
    assert "sentinel" not in response.content.decode()


def test_a_project_without_a_name_gets_a_generated_name(api):
    assert api.post("/sessions", {}).json()["name"].startswith("project-")


def test_an_update_changes_only_the_sent_fields(api):
    project = api.post("/sessions", {"name": "p", "description": "d", "extra": {"a": 1}}).json()

    changed = api.patch(
        f"/sessions/{project['id']}",
        {"end_time": "2026-01-02T03:04:05", "extra": None, "name": None, "description": None},
    ).json()

    assert changed["end_time"] == "2026-01-02T03:04:05Z"
    assert (changed["description"], changed["extra"]) == ("d", {"a": 1})


def test_renaming_to_a_taken_name_is_rejected(api, workspace):
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

    assert project_names(first) + project_names(second) == ["default", "p0", "p1", "p2", "p3", "p4"]
    assert project_names(third) == []
    assert {r["X-Pagination-Total"] for r in (first, second, third)} == {"6"}


def test_projects_are_filtered_by_name_dataset_and_metadata(api, workspace):
    dataset = uuid4()
    ProjectFactory(workspace=workspace, name="100%", extra={"metadata": {"k": "v", "l": 1}})
    ProjectFactory(workspace=workspace, name="trial", reference_dataset_id=dataset)

    assert project_names(api.get("/sessions", name="trial")) == ["trial"]
    assert project_names(api.get("/sessions", name="tri")) == []
    assert project_names(api.get("/sessions", name_contains="TRI")) == ["trial"]
    assert project_names(api.get("/sessions", name_contains="%")) == ["100%"]
    assert project_names(api.get("/sessions", reference_dataset=str(dataset))) == ["trial"]
    assert set(project_names(api.get("/sessions", reference_free="True"))) == {"100%", "default"}
    assert project_names(api.get("/sessions", metadata='{"k": "v"}')) == ["100%"]


def test_the_run_count_counts_each_run_once(api, workspace):
    root = wire_run(session_name="p")
    ingest(workspace, root, wire_run(parent=root))
    ingest(workspace, root)

    (project,) = api.get("/sessions", name="p").json()

    assert project["run_count"] == 2
    assert project["last_run_start_time"] is not None


def test_compaction_keeps_the_run_counts(api, workspace):
    for _ in range(3):
        stored_run(workspace, session_name="p")
    before = api.get("/sessions", name="p").json()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE trace_store_runcount SET hour = hour - interval '2 hours'")

    run_store.compact_run_counts()

    assert api.get("/sessions", name="p").json() == before
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trace_store_runcount")
        assert cursor.fetchone() == (1,)


def test_a_deleted_project_is_removed_with_its_runs_and_feedback(api, workspace):
    kept = stored_run(workspace, session_name="kept")
    stored_run(workspace, session_name="gone")
    project = Project.objects.for_workspace(workspace).get(name="gone")
    Feedback(workspace=workspace, project=project, key="k").save()

    assert api.delete(f"/sessions/{project.pk}").status_code == 202
    assert api.get(f"/sessions/{project.pk}").status_code == 404
    assert project_names(api.get("/sessions", name="gone")) == []
    assert api.post("/sessions", {"name": "gone"}).status_code == 200
    deletion.remove_deleted_projects()

    assert not Project.unscoped.filter(pk=project.pk).exists()
    assert not Feedback.objects.for_workspace(workspace).exists()
    assert count_stored_runs() == 1
    assert api.get(f"/runs/{kept}").status_code == 200


@pytest.mark.usefixtures("unexpired_caches")
def test_the_number_of_queries_does_not_grow_with_the_list(api, workspace):
    def count_queries():
        with CaptureQueriesContext(connection) as captured:
            api.get("/sessions")
        return len(captured)

    ensure_default_project(workspace.pk)
    count_queries()  # caches the key
    before = count_queries()
    for _ in range(5):
        ProjectFactory(workspace=workspace)

    assert count_queries() == before


def test_statistics_are_included_on_request(api, workspace):
    root = wire_run(session_name="one")
    usage = {"usage_metadata": {"input_tokens": 3, "output_tokens": 2, "total_cost": 0.5}}
    ingest(workspace, root, wire_run(root, run_type="llm", outputs=usage))
    (plain,) = api.get("/sessions", name="one").json()

    (with_stats,) = api.get("/sessions", name="one", include_stats="True").json()

    assert "latency_p50" not in plain
    assert (with_stats["run_count"], with_stats["total_tokens"], with_stats["total_cost"]) == (
        2,
        5,
        "0.5",
    )
    assert (with_stats["latency_p50"], with_stats["error_rate"]) == (
        pytest.approx(1.0, rel=0.01),
        0,
    )
    assert (
        api.get(f"/sessions/{with_stats['id']}", include_stats="true").json()["total_tokens"] == 5
    )
    later = api.get(
        "/sessions", name="one", include_stats="true", stats_start_time="2999-01-01T00:00:00Z"
    )
    assert later.json()[0]["total_tokens"] in {0, None}


def test_projects_are_filtered_by_their_metadata(api, workspace):
    metadata = {"metadata": {"model": "m-1", "n": 3}}
    ProjectFactory(workspace=workspace, name="one", extra=metadata)
    ProjectFactory(workspace=workspace, name="two", extra={"metadata": {"model": "m-2"}})
    ProjectFactory(workspace=workspace, name="odd", extra={"metadata": "none"})

    def filter_names(text):
        return project_names(api.get("/sessions", filter=text))

    assert filter_names('has(metadata, \'{"model": "m-1"}\')') == ["one"]
    assert filter_names('and(eq(metadata_key, "n"), eq(metadata_value, "3"))') == ["one"]
    assert set(filter_names('neq(name, "one")')) == {
        "default",
        "odd",
        "two",
    }
    assert api.get("/sessions", filter="eq(").status_code == 400


def test_projects_are_sorted_by_the_statistics_of_their_runs(api, workspace):
    now = datetime.now(UTC)
    for name, seconds, failed in (("slow", 9, False), ("quick", 1, False), ("broken", 4, True)):
        end = (now + timedelta(seconds=seconds)).isoformat()
        error = {"error": "boom"} if failed else {}
        stored_run(workspace, session_name=name, start=now, end_time=end, **error)
    stored_run(workspace, session_name="quick", start=now - timedelta(days=2))

    def sorted_names(**query):
        query = {"sort_by_desc": "true", "name_contains": "k", **query}
        return project_names(api.get("/sessions", **query))

    assert sorted_names(sort_by="latency_p50", name_contains="") == [
        *("slow", "broken", "quick"),
        "default",
    ]
    assert sorted_names(sort_by="error_rate") == ["broken", "quick"]
    assert sorted_names(sort_by="runs_count") == ["quick", "broken"]
    assert sorted_names(sort_by="name", sort_by_desc="false") == ["broken", "quick"]
    assert sorted_names(sort_by="runs_count", limit=1, offset=1) == ["broken"]


def test_deleting_several_projects_deletes_all_or_none(api, workspace, other_workspace):
    own_projects = [ProjectFactory(workspace=workspace) for _ in range(2)]
    foreign_project = ProjectFactory(workspace=other_workspace)

    rejected = api.delete(
        f"/sessions?session_ids={own_projects[0].pk}&session_ids={foreign_project.pk}"
    )
    accepted = api.delete(f"/sessions?session_ids={own_projects[0].pk},{own_projects[1].pk}")

    assert (rejected.status_code, accepted.status_code) == (404, 202)
    assert [
        Project.unscoped.get(pk=project.pk).deleted_at is None
        for project in (*own_projects, foreign_project)
    ] == [
        False,
        False,
        True,
    ]
    assert api.delete("/sessions").status_code == 422


def test_experiments_of_a_dataset_are_numbered_and_report_progress(api, workspace):
    plan = {"num_examples": 2, "num_repetitions": 2, "evaluator_keys": ["correct"]}
    start_time = datetime(2026, 1, 1, tzinfo=UTC)
    dataset_fields = {"workspace_id": workspace.pk, "reference_dataset_id": uuid4()}
    first = create_project(name="first", start_time=start_time, **dataset_fields)
    second = create_project(name="second", plan=plan, **dataset_fields)
    stored_run(workspace, session_name="second")

    shown = [api.get(f"/sessions/{project.pk}").json() for project in (first, second)]
    assert [project["test_run_number"] for project in shown] == [1, 2]
    assert shown[0]["experiment_progress"] is None
    progress = shown[1]["experiment_progress"]
    assert progress == {
        "expected_run_count": 4,
        "run_progress": 0.25,
        "evaluator_progress": {"correct": 0.0},
    }


def test_evaluator_progress_counts_each_labelled_feedback_once(api, workspace):
    plan = {"num_examples": 4, "evaluator_keys": ["verdict"]}
    experiment = create_project(
        workspace_id=workspace.pk, name="labelled", reference_dataset_id=uuid4(), plan=plan
    )
    run_id = stored_run(workspace, session_name="labelled")
    api.post("/feedback", {"run_id": str(run_id), "key": "verdict", "value": "good"})

    project = api.get(f"/sessions/{experiment.pk}", include_stats="true").json()

    assert project["feedback_stats"]["verdict"]["values"] == {"good": 1}
    assert project["experiment_progress"]["evaluator_progress"] == {"verdict": 0.25}


def test_the_metadata_of_a_project_is_ordered_by_frequency(
    api, workspace, other_workspace, make_api
):
    for value in ("b", "a", "a"):
        stored_run(workspace, extra={"metadata": {"tier": value, "thread_id": "t"}})
    stored_run(workspace, extra={"metadata": {"tier": "a"}})
    project_id = ensure_default_project(workspace.pk).pk
    path = f"/sessions/{project_id}/metadata"

    assert api.get(path).json() == {"metadata": {"tier": ["a", "b"], "thread_id": ["t"]}}
    assert api.get(path, k=1, metadata_keys="tier").json() == {"metadata": {"tier": ["a"]}}
    assert make_api(other_workspace).get(path).status_code == 404


def test_an_agent_address_resolves_to_one_project(api, workspace, other_workspace, make_api):
    project_id = ensure_addressed_project(workspace.pk, "support", "PRODUCTION")
    query = {"kind": "AGENT", "id": "support", "environment": "PRODUCTION"}

    assert ensure_addressed_project(workspace.pk, "support", "PRODUCTION") == project_id
    assert ensure_addressed_project(workspace.pk, "support", "STAGING") != project_id
    assert api.get("/sessions/resolutions", **query).json() == {"session_id": str(project_id)}
    assert api.get("/sessions/resolutions", **query | {"id": "other"}).status_code == 404
    assert make_api(other_workspace).get("/sessions/resolutions", **query).status_code == 404
    assert project_names(api.get("/sessions", id=str(project_id))) == ["support-production"]


def test_an_agent_project_gets_a_free_name(workspace):
    ProjectFactory(workspace=workspace, name="support-local")

    project_id = ensure_addressed_project(workspace.pk, "support", "LOCAL")

    assert Project.unscoped.get(pk=project_id).name == "support-local-2"


def test_views_are_created_renamed_and_deleted(api, workspace, other_workspace, make_api):
    project = ensure_default_project(workspace.pk)
    path = f"/sessions/{project.pk}/views"
    body = {"display_name": "Errors", "filter_string": "neq(error, null)"}

    created = api.post(path, body).json()
    url = f"{path}/{created['id']}"
    renamed = api.patch(f"{url}/rename", {"display_name": "Failures"}).json()
    changed = api.patch(url, {"tree_filter_string": 'eq(name, "x")'}).json()

    assert (created["session_id"], created["type"]) == (str(project.pk), "runs")
    assert renamed["display_name"] == "Failures"
    assert (changed["filter_string"], changed["tree_filter_string"]) == (
        "neq(error, null)",
        'eq(name, "x")',
    )
    assert [view["id"] for view in api.get(path).json()] == [created["id"]]
    assert api.get(url).json()["display_name"] == "Failures"
    assert api.post(path, body | {"filter_string": "neq("}).status_code == 400
    assert make_api(other_workspace).get(url).status_code == 404
    assert make_api(workspace, "read").patch(url, {"display_name": "x"}).status_code == 403
    assert api.delete(url).status_code == 204
    assert api.get(path).json() == []


def test_projects_are_listed_by_api_v2(api, workspace):
    ProjectFactory(workspace=workspace, name="experiment", reference_dataset_id=uuid4())
    ensure_addressed_project(workspace.pk, "support", "LOCAL")
    ensure_default_project(workspace.pk)
    rows, cursor, pages = [], None, 0

    while pages == 0 or cursor:
        query = {"page_size": 2} | ({"cursor": cursor} if cursor else {})
        page = api.get("/v2/sessions", sort_by="NAME", sort_order="asc", **query).json()
        rows += [(item["name"], item["type"]) for item in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1

    assert rows == [
        ("default", "PROJECT"),
        ("experiment", "EXPERIMENT"),
        ("support-local", "AGENT"),
    ]
    filtered = api.get("/v2/sessions", type=["AGENT", "EXPERIMENT"]).json()["items"]
    assert {item["name"] for item in filtered} == {"experiment", "support-local"}
    assert api.get("/v2/sessions", cursor="x").json()["error"].startswith("The cursor")


def test_a_project_is_created_and_changed_by_api_v2(api, workspace):
    body = {"type": "PROJECT", "name": "one", "trace_tier": "SHORT_LIVED"}

    created = api.post("/v2/sessions", body)
    conflict = api.post("/v2/sessions", body)
    path = f"/v2/sessions/{created.json()['id']}"
    changed = api.patch(path, {"description": "a description", "trace_tier": "LONG_LIVED"}).json()

    assert (created.status_code, created.json()["trace_tier"]) == (201, "SHORT_LIVED")
    assert (conflict.status_code, conflict.headers["x-should-retry"]) == (409, "false")
    assert (changed["description"], changed["trace_tier"]) == ("a description", "LONG_LIVED")
    assert api.get(path, include_stats="true").json()["run_count"] == 0
    assert api.post("/v2/sessions", {"type": "EXPERIMENT"}).status_code == 422


@pytest.mark.parametrize("version", ["", "/v2"])
def test_a_project_sets_its_own_retention(api, workspace, version):
    body = {"type": "PROJECT", "name": "one", "longlived_ttl_days": 30}

    created = api.post(f"{version}/sessions", body).json()
    path = f"{version}/sessions/{created['id']}"
    renamed = api.patch(path, {"name": "two", "longlived_ttl_days": 60}).json()
    kept = api.patch(path, {"description": "a description"}).json()
    reset = api.patch(path, {"longlived_ttl_days": None}).json()

    days = [project["longlived_ttl_days"] for project in (created, renamed, kept, reset)]
    assert days == [30, 60, 60, None]
    assert (reset["name"], reset["description"]) == ("two", "a description")
    for invalid in (0, -1, 40_000, "soon"):
        assert api.patch(path, {"longlived_ttl_days": invalid}).status_code == 422
