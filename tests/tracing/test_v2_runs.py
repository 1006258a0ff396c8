"""Runs and traces of API v2: selects, time windows, cursors, streams, errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from apps.core.ids import uuid7
from apps.feedback.models import Feedback
from apps.tracing.services import create_project
from tests.factories.tracing import ingest, stored_run, wire_run

STREAM = {"Accept": "text/event-stream"}


def read_items(response):
    assert response.status_code == 200, response.content
    return response.json()["items"]


def read_events(response):
    assert response.headers["Content-Type"] == "text/event-stream"
    events = response.content.decode().strip().split("\n\n")
    assert all(event.startswith("event: data\ndata: ") for event in events)
    return [json.loads(event.split("\ndata: ", 1)[1]) for event in events]


def test_an_outsider_finds_no_run_or_trace(make_api, workspace, other_workspace, project):
    run_id = stored_run(workspace)
    outsider = make_api(other_workspace)
    project_filter = {"project_id": str(project.pk)}

    query = outsider.post("/v2/runs/query", {"project_ids": [str(project.pk)]})
    assert read_items(query) == []
    assert outsider.post("/v2/traces/query", project_filter).status_code == 404
    for path in (f"/v2/runs/{run_id}", f"/v2/runs/{run_id}/url", f"/v2/traces/{run_id}/runs"):
        response = outsider.get(path, **project_filter)
        assert response.status_code == 404
        assert response.json()["error"] == response.json()["detail"]


def test_only_the_id_is_returned_without_selects(api, workspace, project):
    run_id = stored_run(workspace)
    body = {"project_ids": [str(project.pk)]}

    assert read_items(api.post("/v2/runs/query", body)) == [{"id": str(run_id)}]
    assert read_items(
        api.post("/v2/runs/query", body | {"selects": ["NAME", "latency_seconds"]})
    ) == [{"id": str(run_id), "name": "step", "latency_seconds": 1.0}]
    assert api.get(f"/v2/runs/{run_id}").json() == {"id": str(run_id)}


def test_a_run_has_the_fields_and_values_of_api_v2(api, workspace, project):
    run = wire_run(
        run_type="llm",
        error="boom",
        tags=["a"],
        extra={"metadata": {"thread_id": "t-1"}},
        outputs={
            "usage_metadata": {
                "input_tokens": 3,
                "output_tokens": 2,
                "input_token_details": {"cache_read": 1},
                "total_cost": 0.25,
            }
        },
    )
    ingest(workspace, run)
    selects = (
        *("RUN_TYPE", "STATUS", "IS_ROOT", "PROJECT_ID", "THREAD_ID", "METADATA", "ERROR", "TAGS"),
        *("TOTAL_TOKENS", "TOTAL_COST", "PROMPT_TOKEN_DETAILS", "INPUTS", "ATTACHMENTS"),
        *("FEEDBACK_STATS", "PARENT_RUN_IDS", "LS_USER_ID"),
    )

    read = api.get(f"/v2/runs/{run['id']}", selects=selects, project_id=str(project.pk)).json()

    assert read == {
        "id": run["id"],
        "run_type": "LLM",
        "status": "ERROR",
        "is_root": True,
        "project_id": str(project.pk),
        "thread_id": "t-1",
        "metadata": {"thread_id": "t-1"},
        "error": "boom",
        "tags": ["a"],
        "total_tokens": 5,
        "total_cost": 0.25,
        "prompt_token_details": {"raw": {"cache_read": 1}},
        "inputs": {"question": "why?"},
        "attachments": {},
        "feedback_stats": {},
        "parent_run_ids": [],
    }


def test_a_query_covers_the_last_day_by_default(api, workspace, project):
    now = datetime.now(UTC)
    new = stored_run(workspace)
    old = stored_run(workspace, start=now - timedelta(days=3))
    body = {"project_ids": [str(project.pk)]}

    def query_ids(**params):
        return {item["id"] for item in read_items(api.post("/v2/runs/query", body | params))}

    assert query_ids() == {str(new)}
    assert query_ids(min_start_time=(now - timedelta(days=4)).isoformat()) == {str(new), str(old)}
    assert query_ids(max_start_time=(now - timedelta(days=2)).isoformat()) == set()
    assert query_ids(ids=[str(old)]) == {str(old)}
    assert query_ids(trace_id=str(old)) == {str(old)}


def test_cursors_page_to_the_last_run(api, workspace, project):
    ingest(workspace, *(wire_run() for _ in range(7)))
    body = {"project_ids": [str(project.pk)], "page_size": 3}
    run_ids, cursor, pages = [], None, 0

    while pages == 0 or cursor:
        page = api.post("/v2/runs/query", body | {"cursor": cursor}).json()
        run_ids += [item["id"] for item in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1

    assert (pages, len(run_ids), len(set(run_ids))) == (3, 7, 7)


def test_a_page_is_streamed_as_patches_to_clients_that_accept_events(api, workspace, project):
    ingest(workspace, wire_run(), wire_run(), wire_run())
    body = {"project_ids": [str(project.pk)], "page_size": 2}
    plain = api.post("/v2/runs/query", body).json()

    events = read_events(api.post("/v2/runs/query", body, headers=STREAM))

    assert events == [
        [{"op": "add", "path": "", "value": {"items": []}}],
        *([{"op": "add", "path": "/items/-", "value": item}] for item in plain["items"]),
        [{"op": "add", "path": "/next_cursor", "value": plain["next_cursor"]}],
    ]


def test_an_error_is_json_even_when_a_stream_was_requested(api, project):
    body = {"project_ids": [str(project.pk)], "filter": "eq("}

    for headers in ({}, STREAM):
        response = api.post("/v2/runs/query", body, headers=headers)
        assert (response.status_code, response.headers["Content-Type"]) == (400, "application/json")
        assert response.json()["error"] == response.json()["detail"]
    other = api.post("/v2/runs/query", body, headers={"Accept": "application/xml"})
    assert (other.status_code, other.json()["code"]) == (406, "not_acceptable")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"project_ids": []},
        {"project_ids": ["x"]},
        {"project_ids": [str(uuid7())], "reference_dataset_id": str(uuid7())},
        {"project_ids": [str(uuid7())], "selects": ["NONSENSE"]},
        {"project_ids": [str(uuid7())], "page_size": 0},
        {"project_ids": [str(uuid7())], "page_size": 1001},
        {"project_ids": [str(uuid7())], "run_type": "AGENT"},
    ],
)
def test_an_invalid_body_is_rejected(api, body):
    response = api.post("/v2/runs/query", body)

    assert response.status_code == 422
    assert response.json()["error"] == response.json()["detail"]


def test_an_ai_search_is_not_implemented(api, project):
    body = {"project_ids": [str(project.pk)], "ai_search": "angry customers"}

    response = api.post("/v2/runs/query", body)

    assert (response.status_code, response.json()["code"]) == (501, "not_implemented")


def test_traces_are_returned_with_their_root_and_totals(api, workspace, project):
    token = (datetime.now(UTC) - timedelta(seconds=9)).isoformat()
    root = wire_run(name="agent")
    call = wire_run(
        parent=root,
        run_type="llm",
        name="model",
        outputs={"usage_metadata": {"input_tokens": 3, "output_tokens": 2, "total_cost": 0.5}},
        events=[{"name": "new_token", "time": token}],
    )
    other = wire_run(name="other")
    ingest(workspace, root, call, other)
    project_filter = {"project_id": str(project.pk)}
    selects = ["NAME", "TOTAL_TOKENS", "TOTAL_COST", "FIRST_TOKEN_TIME"]

    items = read_items(
        api.post(
            "/v2/traces/query", project_filter | {"selects": selects, "trace_ids": [root["id"]]}
        )
    )

    (item,) = items
    assert item["root_run"] == {"id": root["id"], "name": "agent"}
    first = item["trace_aggregates"].pop("first_token_time")
    assert datetime.fromisoformat(first) == datetime.fromisoformat(token)
    assert item["trace_aggregates"] == {"total_tokens": 5, "total_cost": 0.5}
    assert read_items(api.post("/v2/traces/query", project_filter)) == [
        {"root_run": {"id": other["id"]}},
        {"root_run": {"id": root["id"]}},
    ]


def test_the_runs_of_a_trace_are_listed_in_tree_order(api, workspace, project):
    root = wire_run()
    children = [wire_run(parent=root, name=f"step {n}") for n in range(3)]
    ingest(workspace, *reversed(children), root)
    path = f"/v2/traces/{root['id']}/runs"

    runs = read_items(api.get(path, project_id=str(project.pk), selects=["NAME", "IS_ROOT"]))

    assert [(run["id"], run["is_root"]) for run in runs] == [
        (root["id"], True),
        *((child["id"], False) for child in children),
    ]
    assert api.get(path).status_code == 404


def test_the_url_of_a_run_is_the_address_of_its_page(api, live_url, workspace, project):
    run_id = uuid7()

    response = api.get(f"/v2/runs/{run_id}/url", project_id=str(project.pk), trace_id=str(run_id))

    assert response.json() == {
        "url": f"{live_url}/o/{workspace.pk}/projects/p/{project.pk}/r/{run_id}?trace_id={run_id}"
    }


@pytest.fixture
def live_url(settings):
    settings.BASE_URL = "https://slipway.example"
    return settings.BASE_URL


def test_runs_of_experiments_are_queried_by_their_dataset(api, workspace):
    dataset = uuid7()
    create_project(workspace_id=workspace.pk, name="one", reference_dataset_id=dataset)
    old = datetime.now(UTC) - timedelta(days=5)
    run_id = stored_run(workspace, session_name="one", start=old, reference_example_id=str(uuid7()))

    body = {"reference_dataset_id": str(dataset), "selects": ["REFERENCE_DATASET_ID"]}

    assert read_items(api.post("/v2/runs/query", body)) == [
        {"id": str(run_id), "reference_dataset_id": str(dataset)}
    ]


def test_feedback_filters_are_limited_by_its_modification_time(api, workspace, project):
    early, late, silent = (wire_run(name=name) for name in ("early", "late", "silent"))
    ingest(workspace, early, late, silent)
    now = datetime.now(UTC)
    for run, age in ((early, 60), (late, 10)):
        feedback = Feedback(
            workspace=workspace, project=project, run_id=run["id"], key="good", score=1
        )
        feedback.save()
        rows = Feedback.objects.for_workspace(workspace).filter(pk=feedback.pk)
        rows.update(modified_at=now - timedelta(minutes=age))

    def query_names(path="/v2/runs/query", **params):
        projects = {"project_ids": [str(project.pk)]} if "runs" in path else {}
        body = projects | {"project_id": str(project.pk), "selects": ["NAME"]} | params
        items = read_items(api.post(path, body))
        return sorted(item.get("root_run", item)["name"] for item in items)

    half = (now - timedelta(minutes=30)).isoformat()
    good = 'eq(feedback_key, "good")'
    assert query_names(filter=good, min_feedback_modified_at=half) == ["late"]
    assert query_names(filter=good, max_feedback_modified_at=half) == ["early"]
    assert query_names(trace_filter=good, min_feedback_modified_at=half) == ["late"]
    assert query_names(tree_filter=good, max_feedback_modified_at=half) == ["early"]
    assert query_names(filter=f"not({good})", min_feedback_modified_at=half) == ["early", "silent"]
    traces = query_names("/v2/traces/query", trace_filter=good, min_feedback_modified_at=half)
    assert traces == ["late"]


@pytest.mark.parametrize("path", ["/v2/runs/query", "/v2/traces/query"])
def test_a_feedback_time_without_a_feedback_condition_is_rejected(api, project, path):
    body = {"project_ids": [str(project.pk)]} if "runs" in path else {}
    body |= {"project_id": str(project.pk), "min_feedback_modified_at": "2026-01-01T00:00:00Z"}

    response = api.post(path, body | {"trace_filter": 'eq(name, "a")'})

    assert response.status_code == 400
    assert "need a condition on feedback" in response.json()["detail"]
