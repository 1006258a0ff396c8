"""What the Go client sends and reads: prefixed paths, repeated parameters, required keys."""

from __future__ import annotations

import uuid

import pytest

from tests.tracing.sdk.raw import GO, run, speaking, told

pytestmark = pytest.mark.xdist_group("sdk-go")
REQUIRED = ["id", "app_path", "dotted_order", "name", "run_type", "session_id", "status"]


@pytest.fixture(scope="module")
def go(live):
    with speaking(live, GO) as client:
        yield client


@pytest.fixture(scope="module")
def project(go):
    """Its id, with two traces in it, of which the older one has a child."""
    name = f"go {uuid.uuid4()}"
    older, newer = run(name, 2), run(name, 1, name="second")
    child = run(name, 1.9, parent=older, name="model", run_type="llm")
    body = {"post": [older, newer, child], "patch": []}
    assert isinstance(told(go.post("/api/v1/runs/batch", json=body), 202), dict)
    (found,) = told(go.get("/api/v1/sessions", params={"limit": 1, "name": name}))
    return found["id"]


def test_pages_by_offset_end_with_an_empty_one(go, project):
    query = {"id": project, "limit": 1, "reference_free": "true", "include_stats": "true"}

    pages = [told(go.get("/api/v1/sessions", params=query | {"offset": n})) for n in range(2)]

    assert [len(page) for page in pages] == [1, 0]
    assert (pages[0][0]["run_count"], pages[0][0]["error_rate"]) == (3, 0.0)


def test_runs_have_the_keys_that_its_types_need(go, project):
    page = told(go.post("/api/v1/runs/query", json={"session": [project], "limit": 2}))
    rest = told(
        go.post(
            "/api/v1/runs/query",
            json={"session": [project], "limit": 2, "cursor": page["cursors"]["next"]},
        )
    )

    runs = page["runs"] + rest["runs"]
    assert [one["name"] for one in runs] == ["second", "model", "agent"]
    assert [[name for name in REQUIRED if not one[name]] for one in runs] == [[]] * 3
    assert rest["cursors"]["next"] is None


def test_one_run_is_begun_and_ended(go, project):
    run_id = str(uuid.uuid4())
    begun = {"id": run_id, "name": "one", "run_type": "tool", "inputs": {}, "session_id": project}

    assert isinstance(told(go.post("/api/v1/runs", json=begun), 202), dict)
    ended = {"outputs": {"a": 1}, "end_time": "2999-01-01T00:00:00Z", "session_id": project}
    assert isinstance(told(go.patch(f"/api/v1/runs/{run_id}", json=ended), 202), dict)

    found = told(go.get(f"/api/v1/runs/{run_id}"))
    assert (found["status"], found["outputs"]) == ("success", {"a": 1})
    told(go.post("/api/v1/runs/delete", json={"session_id": project, "trace_ids": [run_id]}), 202)
    assert go.get(f"/api/v1/runs/{run_id}").status_code == 404


def test_the_second_version_leads_on_by_cursors(go, project):
    body = {"project_ids": [project], "page_size": 2, "selects": ["NAME", "TOTAL_TOKENS"]}

    page = told(go.post("/api/v2/runs/query", json=body))
    rest = told(go.post("/api/v2/runs/query", json=body | {"cursor": page["next_cursor"]}))

    assert [one["name"] for one in page["items"] + rest["items"]] == ["second", "model", "agent"]
    assert not rest.get("next_cursor")


def test_parameters_that_are_lists_are_repeated_or_have_commas(go, project):
    (found,) = told(go.post("/api/v2/traces/query", json={"project_id": project, "page_size": 1}))[
        "items"
    ]
    path = f"/api/v2/runs/{found['root_run']['id']}?project_id={project}"

    repeated = told(go.get(f"{path}&selects=NAME&selects=STATUS"))
    together = told(go.get(f"{path}&selects=NAME,STATUS"))

    assert repeated == together
    assert (repeated["name"], repeated["status"]) == ("second", "SUCCESS")


def test_a_conflict_is_not_to_be_tried_again(go, project):
    name = told(go.get(f"/api/v1/sessions/{project}"))["name"]

    taken = go.post("/api/v1/sessions", json={"name": name})

    assert (taken.status_code, taken.headers["x-should-retry"]) == (409, "false")
    assert "already exists" in taken.json()["detail"]


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
def test_every_refusal_is_an_object_with_words(go, method, path, status):
    answer = go.request(method, path.format(id=uuid.uuid4()), json={})

    body = told(answer, status)
    assert isinstance(body["detail"], str)
    assert isinstance(body.get("error", ""), str)


def test_feedback_is_given_listed_and_summed(go, project):
    (newest, *_) = told(go.post("/api/v1/runs/query", json={"session": [project]}))["runs"]
    said = {"run_id": newest["id"], "key": "go", "score": 0.5, "trace_id": newest["trace_id"]}

    given = told(go.post("/api/v1/feedback", json=said))

    (listed,) = told(go.get(f"/api/v1/feedback?run={newest['id']}&run={uuid.uuid4()}&key=go"))
    assert (listed["id"], listed["score"]) == (given["id"], 0.5)
    changed = told(go.patch(f"/api/v1/feedback/{given['id']}", json={"score": 0.75}))
    assert changed["score"] == 0.75
    assert told(go.get(f"/api/v1/runs/{newest['id']}"))["feedback_stats"]["go"]["avg"] == 0.75
    assert go.delete(f"/api/v1/feedback/{given['id']}").status_code in {200, 204}


def test_a_share_is_closed_twice_without_a_word(go, project):
    (newest, *_) = told(go.post("/api/v1/runs/query", json={"session": [project]}))["runs"]
    path = f"/api/v2/runs/{newest['id']}/share"
    body = {"session_id": project, "trace_id": newest["trace_id"]}

    tokens = {told(go.post(path, json=body))["share_token"] for _ in range(2)}
    closed = [go.delete(path, params={"session_id": project}) for _ in range(2)]

    assert len(tokens) == 1
    assert [(one.status_code, one.content) for one in closed] == [(204, b"")] * 2


def test_statistics_and_the_dashboard_are_told(go, project):
    stats = told(go.post("/api/v1/runs/stats", json={"session": [project], "is_root": True}))
    frame = {"start_time": "2026-01-01T00:00:00Z", "omit_data": True}
    dashboard = told(go.post(f"/api/v1/sessions/{project}/dashboard", json=frame))

    assert (stats["run_count"], stats["latency_p50"]) == (2, pytest.approx(1.0, rel=0.02))
    assert dashboard["session_id"] == project
    assert [part["index"] for part in dashboard["sub_sections"]] == list(
        range(len(dashboard["sub_sections"]))
    )
