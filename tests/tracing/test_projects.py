"""/sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.feedback.models import Feedback
from apps.tracing.models import Project
from apps.tracing.services import ensure_addressed_project, ensure_default_project, maintenance
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
        cursor.execute("UPDATE tracing_runcount SET hour = hour - interval '2 hours'")

    maintenance.compact_run_counts()

    assert api.get("/sessions", name="p").json() == before
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tracing_runcount")
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
    maintenance.remove_deleted_projects()

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


def test_figures_are_told_when_they_are_asked_for(api, workspace):
    root = wire_run(session_name="one")
    usage = {"usage_metadata": {"input_tokens": 3, "output_tokens": 2, "total_cost": 0.5}}
    ingest(workspace, root, wire_run(root, run_type="llm", outputs=usage))
    (plain,) = api.get("/sessions", name="one").json()

    (told,) = api.get("/sessions", name="one", include_stats="True").json()

    assert "latency_p50" not in plain
    assert (told["run_count"], told["total_tokens"], told["total_cost"]) == (2, 5, "0.5")
    assert (told["latency_p50"], told["error_rate"]) == (pytest.approx(1.0, rel=0.01), 0)
    assert api.get(f"/sessions/{told['id']}", include_stats="true").json()["total_tokens"] == 5
    later = api.get(
        "/sessions", name="one", include_stats="true", stats_start_time="2999-01-01T00:00:00Z"
    )
    assert later.json()[0]["total_tokens"] in {0, None}


def test_projects_are_filtered_by_their_metadata(api, workspace):
    metadata = {"metadata": {"model": "m-1", "n": 3}}
    ProjectFactory(workspace=workspace, name="one", extra=metadata)
    ProjectFactory(workspace=workspace, name="two", extra={"metadata": {"model": "m-2"}})
    ProjectFactory(workspace=workspace, name="odd", extra={"metadata": "none"})

    def found(text):
        return names(api.get("/sessions", filter=text))

    assert found('has(metadata, \'{"model": "m-1"}\')') == ["one"]
    assert found('and(eq(metadata_key, "n"), eq(metadata_value, "3"))') == ["one"]
    assert set(found('neq(name, "one")')) == {
        "default",
        "odd",
        "two",
    }
    assert api.get("/sessions", filter="eq(").status_code == 400


def test_projects_are_ordered_by_what_their_runs_did(api, workspace):
    now = datetime.now(UTC)
    for name, seconds, failed in (("slow", 9, False), ("quick", 1, False), ("broken", 4, True)):
        end = (now + timedelta(seconds=seconds)).isoformat()
        error = {"error": "boom"} if failed else {}
        stored_run(workspace, session_name=name, start=now, end_time=end, **error)
    stored_run(workspace, session_name="quick", start=now - timedelta(days=2))

    def order(**query):
        query = {"sort_by_desc": "true", "name_contains": "k", **query}
        return names(api.get("/sessions", **query))

    assert order(sort_by="latency_p50", name_contains="") == [
        *("slow", "broken", "quick"),
        "default",
    ]
    assert order(sort_by="error_rate") == ["broken", "quick"]
    assert order(sort_by="runs_count") == ["quick", "broken"]
    assert order(sort_by="name", sort_by_desc="false") == ["broken", "quick"]
    assert order(sort_by="runs_count", limit=1, offset=1) == ["broken"]


def test_several_projects_are_deleted_at_once_or_none(api, workspace, stranger):
    mine = [ProjectFactory(workspace=workspace) for _ in range(2)]
    theirs = ProjectFactory(workspace=stranger)

    refused = api.delete(f"/sessions?session_ids={mine[0].pk}&session_ids={theirs.pk}")
    done = api.delete(f"/sessions?session_ids={mine[0].pk},{mine[1].pk}")

    assert (refused.status_code, done.status_code) == (404, 202)
    assert [Project.unscoped.get(pk=one.pk).deleted_at is None for one in (*mine, theirs)] == [
        False,
        False,
        True,
    ]
    assert api.delete("/sessions").status_code == 422


def test_experiments_of_a_dataset_are_numbered_and_tell_how_far_they_are(api, workspace):
    dataset = str(uuid4())
    plan = {"num_examples": 2, "num_repetitions": 2, "evaluator_keys": ["correct"]}
    said = {"reference_dataset_id": dataset}
    first = api.post("/sessions", {"name": "first", "start_time": "2026-01-01T00:00:00Z"} | said)
    second = api.post("/sessions", {"name": "second"} | said | plan)
    stored_run(workspace, session_name="second")

    assert (first.json()["test_run_number"], second.json()["test_run_number"]) == (1, 2)
    assert first.json()["experiment_progress"] is None
    told = api.get(f"/sessions/{second.json()['id']}").json()["experiment_progress"]
    assert told == {
        "expected_run_count": 4,
        "run_progress": 0.25,
        "evaluator_progress": {"correct": 0.0},
    }


def test_the_metadata_of_a_project_is_told_by_its_frequency(api, workspace, stranger, api_of):
    for value in ("b", "a", "a"):
        stored_run(workspace, extra={"metadata": {"tier": value, "thread_id": "t"}})
    stored_run(workspace, extra={"metadata": {"tier": "a"}})
    project_id = ensure_default_project(workspace.pk).pk
    path = f"/sessions/{project_id}/metadata"

    assert api.get(path).json() == {"metadata": {"tier": ["a", "b"], "thread_id": ["t"]}}
    assert api.get(path, k=1, metadata_keys="tier").json() == {"metadata": {"tier": ["a"]}}
    assert api_of(stranger).get(path).status_code == 404


def test_an_agents_address_stands_for_one_project(api, workspace, stranger, api_of):
    made = ensure_addressed_project(workspace.pk, "support", "PRODUCTION")
    query = {"kind": "AGENT", "id": "support", "environment": "PRODUCTION"}

    assert ensure_addressed_project(workspace.pk, "support", "PRODUCTION") == made
    assert ensure_addressed_project(workspace.pk, "support", "STAGING") != made
    assert api.get("/sessions/resolutions", **query).json() == {"session_id": str(made)}
    assert api.get("/sessions/resolutions", **query | {"id": "other"}).status_code == 404
    assert api_of(stranger).get("/sessions/resolutions", **query).status_code == 404
    assert names(api.get("/sessions", id=str(made))) == ["support-production"]


def test_an_address_whose_name_is_taken_gets_another(workspace):
    ProjectFactory(workspace=workspace, name="support-local")

    made = ensure_addressed_project(workspace.pk, "support", "LOCAL")

    assert Project.unscoped.get(pk=made).name == "support-local-2"


def test_views_are_saved_renamed_and_dropped(api, workspace, stranger, api_of):
    project = ensure_default_project(workspace.pk)
    path = f"/sessions/{project.pk}/views"
    body = {"display_name": "Errors", "filter_string": "neq(error, null)"}

    made = api.post(path, body).json()
    one = f"{path}/{made['id']}"
    renamed = api.patch(f"{one}/rename", {"display_name": "Failures"}).json()
    changed = api.patch(one, {"tree_filter_string": 'eq(name, "x")'}).json()

    assert (made["session_id"], made["type"]) == (str(project.pk), "runs")
    assert renamed["display_name"] == "Failures"
    assert (changed["filter_string"], changed["tree_filter_string"]) == (
        "neq(error, null)",
        'eq(name, "x")',
    )
    assert [view["id"] for view in api.get(path).json()] == [made["id"]]
    assert api.get(one).json()["display_name"] == "Failures"
    assert api.post(path, body | {"filter_string": "neq("}).status_code == 400
    assert api_of(stranger).get(one).status_code == 404
    assert api_of(workspace, "read").patch(one, {"display_name": "x"}).status_code == 403
    assert api.delete(one).status_code == 204
    assert api.get(path).json() == []


def test_projects_are_listed_in_the_second_protocol(api, workspace):
    ProjectFactory(workspace=workspace, name="experiment", reference_dataset_id=uuid4())
    ensure_addressed_project(workspace.pk, "support", "LOCAL")
    ensure_default_project(workspace.pk)
    seen, cursor, pages = [], None, 0

    while pages == 0 or cursor:
        query = {"page_size": 2} | ({"cursor": cursor} if cursor else {})
        page = api.get("/v2/sessions", sort_by="NAME", sort_order="asc", **query).json()
        seen += [(one["name"], one["type"]) for one in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1

    assert seen == [
        ("default", "PROJECT"),
        ("experiment", "EXPERIMENT"),
        ("support-local", "AGENT"),
    ]
    found = api.get("/v2/sessions", type=["AGENT", "EXPERIMENT"]).json()["items"]
    assert {one["name"] for one in found} == {"experiment", "support-local"}
    assert api.get("/v2/sessions", cursor="x").json()["error"].startswith("The cursor")


def test_a_project_of_the_second_protocol_is_made_and_changed(api, workspace):
    body = {"type": "PROJECT", "name": "one", "trace_tier": "SHORT_LIVED"}

    made = api.post("/v2/sessions", body)
    taken = api.post("/v2/sessions", body)
    path = f"/v2/sessions/{made.json()['id']}"
    changed = api.patch(path, {"description": "said", "trace_tier": "LONG_LIVED"}).json()

    assert (made.status_code, made.json()["trace_tier"]) == (201, "SHORT_LIVED")
    assert (taken.status_code, taken.headers["x-should-retry"]) == (409, "false")
    assert (changed["description"], changed["trace_tier"]) == ("said", "LONG_LIVED")
    assert api.get(path, include_stats="true").json()["run_count"] == 0
    assert api.post("/v2/sessions", {"type": "EXPERIMENT"}).status_code == 422


@pytest.mark.parametrize("version", ["", "/v2"])
def test_a_project_says_itself_how_long_its_traces_live(api, workspace, version):
    body = {"type": "PROJECT", "name": "one", "longlived_ttl_days": 30}

    made = api.post(f"{version}/sessions", body).json()
    path = f"{version}/sessions/{made['id']}"
    renamed = api.patch(path, {"name": "two", "longlived_ttl_days": 60}).json()
    kept = api.patch(path, {"description": "said"}).json()
    freed = api.patch(path, {"longlived_ttl_days": None}).json()

    told = [one["longlived_ttl_days"] for one in (made, renamed, kept, freed)]
    assert told == [30, 60, 60, None]
    assert (freed["name"], freed["description"]) == ("two", "said")
    for wrong in (0, -1, 40_000, "soon"):
        assert api.patch(path, {"longlived_ttl_days": wrong}).status_code == 422
