"""Requests of the Go client: prefixed paths, repeated parameters, required keys."""

from __future__ import annotations

import uuid

import pytest

from tests.tracing.sdk.raw_clients import GO, build_run, open_client, read_json

pytestmark = pytest.mark.xdist_group("sdk-go")
REQUIRED = ["id", "app_path", "dotted_order", "name", "run_type", "session_id", "status"]


@pytest.fixture(scope="module")
def go(live):
    with open_client(live, GO) as client:
        yield client


@pytest.fixture(scope="module")
def project(go):
    """The id of a project with two traces; the older trace has a child run."""
    name = f"go {uuid.uuid4()}"
    older, newer = build_run(name, 2), build_run(name, 1, name="second")
    child = build_run(name, 1.9, parent=older, name="model", run_type="llm")
    body = {"post": [older, newer, child], "patch": []}
    assert isinstance(read_json(go.post("/api/v1/runs/batch", json=body), 202), dict)
    (row,) = read_json(go.get("/api/v1/sessions", params={"limit": 1, "name": name}))
    return row["id"]


def test_pages_by_offset_end_with_an_empty_one(go, project):
    query = {"id": project, "limit": 1, "reference_free": "true", "include_stats": "true"}

    pages = [read_json(go.get("/api/v1/sessions", params=query | {"offset": n})) for n in range(2)]

    assert [len(page) for page in pages] == [1, 0]
    assert (pages[0][0]["run_count"], pages[0][0]["error_rate"]) == (3, 0.0)


def test_runs_have_the_keys_that_the_types_of_the_client_require(go, project):
    page = read_json(go.post("/api/v1/runs/query", json={"session": [project], "limit": 2}))
    rest = read_json(
        go.post(
            "/api/v1/runs/query",
            json={"session": [project], "limit": 2, "cursor": page["cursors"]["next"]},
        )
    )

    runs = page["runs"] + rest["runs"]
    assert [run["name"] for run in runs] == ["second", "model", "agent"]
    assert [[name for name in REQUIRED if not run[name]] for run in runs] == [[]] * 3
    assert rest["cursors"]["next"] is None


def test_a_run_is_created_updated_and_deleted(go, project):
    run_id = str(uuid.uuid4())
    creation = {
        "id": run_id,
        "name": "single",
        "run_type": "tool",
        "inputs": {},
        "session_id": project,
    }

    assert isinstance(read_json(go.post("/api/v1/runs", json=creation), 202), dict)
    update = {"outputs": {"a": 1}, "end_time": "2999-01-01T00:00:00Z", "session_id": project}
    assert isinstance(read_json(go.patch(f"/api/v1/runs/{run_id}", json=update), 202), dict)

    run = read_json(go.get(f"/api/v1/runs/{run_id}"))
    assert (run["status"], run["outputs"]) == ("success", {"a": 1})
    read_json(
        go.post("/api/v1/runs/delete", json={"session_id": project, "trace_ids": [run_id]}), 202
    )
    assert go.get(f"/api/v1/runs/{run_id}").status_code == 404


def test_the_v2_query_pages_by_cursor(go, project):
    body = {"project_ids": [project], "page_size": 2, "selects": ["NAME", "TOTAL_TOKENS"]}

    page = read_json(go.post("/api/v2/runs/query", json=body))
    rest = read_json(go.post("/api/v2/runs/query", json=body | {"cursor": page["next_cursor"]}))

    assert [run["name"] for run in page["items"] + rest["items"]] == ["second", "model", "agent"]
    assert not rest.get("next_cursor")


def test_list_parameters_are_repeated_or_separated_by_commas(go, project):
    (trace,) = read_json(
        go.post("/api/v2/traces/query", json={"project_id": project, "page_size": 1})
    )["items"]
    path = f"/api/v2/runs/{trace['root_run']['id']}?project_id={project}"

    repeated = read_json(go.get(f"{path}&selects=NAME&selects=STATUS"))
    together = read_json(go.get(f"{path}&selects=NAME,STATUS"))

    assert repeated == together
    assert (repeated["name"], repeated["status"]) == ("second", "SUCCESS")


def test_a_conflict_tells_the_client_not_to_retry(go, project):
    name = read_json(go.get(f"/api/v1/sessions/{project}"))["name"]

    response = go.post("/api/v1/sessions", json={"name": name})

    assert (response.status_code, response.headers["x-should-retry"]) == (409, "false")
    assert "already exists" in response.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/runs/{id}", 404),
        ("GET", "/api/v2/runs/{id}", 404),
        ("GET", "/api/v1/sessions/{id}", 404),
        ("POST", "/api/v2/runs/query", 422),
        ("POST", "/api/v1/runs/query", 400),
        ("POST", "/api/v1/platform/alerts/{id}", 404),
    ],
)
def test_every_error_is_an_object_with_a_detail_string(go, method, path, status):
    response = go.request(method, path.format(id=uuid.uuid4()), json={})

    body = read_json(response, status)
    assert isinstance(body["detail"], str)
    assert isinstance(body.get("error", ""), str)


def test_feedback_is_created_listed_changed_and_averaged(go, project):
    (newest, *_) = read_json(go.post("/api/v1/runs/query", json={"session": [project]}))["runs"]
    body = {"run_id": newest["id"], "key": "go", "score": 0.5, "trace_id": newest["trace_id"]}

    created = read_json(go.post("/api/v1/feedback", json=body))

    (listed,) = read_json(go.get(f"/api/v1/feedback?run={newest['id']}&run={uuid.uuid4()}&key=go"))
    assert (listed["id"], listed["score"]) == (created["id"], 0.5)
    changed = read_json(go.patch(f"/api/v1/feedback/{created['id']}", json={"score": 0.75}))
    assert changed["score"] == 0.75
    assert read_json(go.get(f"/api/v1/runs/{newest['id']}"))["feedback_stats"]["go"]["avg"] == 0.75
    assert go.delete(f"/api/v1/feedback/{created['id']}").status_code in {200, 204}


def test_deleting_a_public_link_twice_answers_204_both_times(go, project):
    (newest, *_) = read_json(go.post("/api/v1/runs/query", json={"session": [project]}))["runs"]
    path = f"/api/v2/runs/{newest['id']}/share"
    body = {"session_id": project, "trace_id": newest["trace_id"]}

    tokens = {read_json(go.post(path, json=body))["share_token"] for _ in range(2)}
    responses = [go.delete(path, params={"session_id": project}) for _ in range(2)]

    assert len(tokens) == 1
    assert [(response.status_code, response.content) for response in responses] == [(204, b"")] * 2


def test_statistics_and_the_dashboard_of_a_project_are_read(go, project):
    stats = read_json(go.post("/api/v1/runs/stats", json={"session": [project], "is_root": True}))
    time_range = {"start_time": "2026-01-01T00:00:00Z", "omit_data": True}
    dashboard = read_json(go.post(f"/api/v1/sessions/{project}/dashboard", json=time_range))

    assert (stats["run_count"], stats["latency_p50"]) == (2, pytest.approx(1.0, rel=0.02))
    assert dashboard["session_id"] == project
    assert [section["index"] for section in dashboard["sub_sections"]] == list(
        range(len(dashboard["sub_sections"]))
    )
