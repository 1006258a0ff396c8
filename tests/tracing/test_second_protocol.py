"""Runs and traces of the second protocol: selects, windows, cursors, streams, errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from apps.core.ids import uuid7
from apps.feedback.models import Feedback
from apps.tracing.services import create_project, ensure_project
from tests.factories.tracing import ingest, stored_run, wire_run

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


def items_of(response):
    assert response.status_code == 200, response.content
    return response.json()["items"]


def events_of(response):
    assert response.headers["Content-Type"] == "text/event-stream"
    events = response.content.decode().strip().split("\n\n")
    assert all(event.startswith("event: data\ndata: ") for event in events)
    return [json.loads(event.split("\ndata: ", 1)[1]) for event in events]


def test_a_stranger_finds_nothing(api_of, workspace, stranger, project):
    run_id = stored_run(workspace)
    outsider = api_of(stranger)
    named = {"project_id": str(project.pk)}

    query = outsider.post("/v2/runs/query", {"project_ids": [str(project.pk)]})
    assert items_of(query) == []
    assert outsider.post("/v2/traces/query", named).status_code == 404
    for path in (f"/v2/runs/{run_id}", f"/v2/runs/{run_id}/url", f"/v2/traces/{run_id}/runs"):
        response = outsider.get(path, **named)
        assert response.status_code == 404
        assert response.json()["error"] == response.json()["detail"]


def test_only_the_id_is_told_unless_more_is_selected(api, workspace, project):
    run_id = stored_run(workspace)
    body = {"project_ids": [str(project.pk)]}

    assert items_of(api.post("/v2/runs/query", body)) == [{"id": str(run_id)}]
    assert items_of(
        api.post("/v2/runs/query", body | {"selects": ["NAME", "latency_seconds"]})
    ) == [{"id": str(run_id), "name": "step", "latency_seconds": 1.0}]
    assert api.get(f"/v2/runs/{run_id}").json() == {"id": str(run_id)}


def test_a_run_is_told_in_the_words_of_the_second_protocol(api, workspace, project):
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

    got = api.get(f"/v2/runs/{run['id']}", selects=selects, project_id=str(project.pk)).json()

    assert got == {
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


def test_the_last_day_is_asked_for_unless_said_otherwise(api, workspace, project):
    now = datetime.now(UTC)
    new = stored_run(workspace)
    old = stored_run(workspace, start=now - timedelta(days=3))
    body = {"project_ids": [str(project.pk)]}

    def found(**more):
        return {item["id"] for item in items_of(api.post("/v2/runs/query", body | more))}

    assert found() == {str(new)}
    assert found(min_start_time=(now - timedelta(days=4)).isoformat()) == {str(new), str(old)}
    assert found(max_start_time=(now - timedelta(days=2)).isoformat()) == set()
    assert found(ids=[str(old)]) == {str(old)}
    assert found(trace_id=str(old)) == {str(old)}


def test_pages_lead_on_to_the_end(api, workspace, project):
    ingest(workspace, *(wire_run() for _ in range(7)))
    body = {"project_ids": [str(project.pk)], "page_size": 3}
    seen, cursor, pages = [], None, 0

    while pages == 0 or cursor:
        page = api.post("/v2/runs/query", body | {"cursor": cursor}).json()
        seen += [item["id"] for item in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1

    assert (pages, len(seen), len(set(seen))) == (3, 7, 7)


def test_a_page_comes_as_patches_to_those_who_take_events(api, workspace, project):
    ingest(workspace, wire_run(), wire_run(), wire_run())
    body = {"project_ids": [str(project.pk)], "page_size": 2}
    plain = api.post("/v2/runs/query", body).json()

    events = events_of(api.post("/v2/runs/query", body, headers=STREAM))

    assert events == [
        [{"op": "add", "path": "", "value": {"items": []}}],
        *([{"op": "add", "path": "/items/-", "value": item}] for item in plain["items"]),
        [{"op": "add", "path": "/next_cursor", "value": plain["next_cursor"]}],
    ]


def test_a_refusal_is_json_whatever_was_to_come(api, project):
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
def test_a_body_that_makes_no_sense_is_refused(api, body):
    response = api.post("/v2/runs/query", body)

    assert response.status_code == 422
    assert response.json()["error"] == response.json()["detail"]


def test_a_search_by_a_language_model_is_not_done_here(api, project):
    body = {"project_ids": [str(project.pk)], "ai_search": "angry customers"}

    response = api.post("/v2/runs/query", body)

    assert (response.status_code, response.json()["code"]) == (501, "not_implemented")


def test_traces_are_told_by_their_roots_and_sums(api, workspace, project):
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
    named = {"project_id": str(project.pk)}
    selects = ["NAME", "TOTAL_TOKENS", "TOTAL_COST", "FIRST_TOKEN_TIME"]

    found = items_of(
        api.post("/v2/traces/query", named | {"selects": selects, "trace_ids": [root["id"]]})
    )

    ((item),) = found
    assert item["root_run"] == {"id": root["id"], "name": "agent"}
    first = item["trace_aggregates"].pop("first_token_time")
    assert datetime.fromisoformat(first) == datetime.fromisoformat(token)
    assert item["trace_aggregates"] == {"total_tokens": 5, "total_cost": 0.5}
    assert items_of(api.post("/v2/traces/query", named)) == [
        {"root_run": {"id": other["id"]}},
        {"root_run": {"id": root["id"]}},
    ]


def test_a_trace_gives_all_its_runs_in_their_order(api, workspace, project):
    root = wire_run()
    children = [wire_run(parent=root, name=f"step {n}") for n in range(3)]
    ingest(workspace, *reversed(children), root)
    path = f"/v2/traces/{root['id']}/runs"

    found = items_of(api.get(path, project_id=str(project.pk), selects=["NAME", "IS_ROOT"]))

    assert [(one["id"], one["is_root"]) for one in found] == [
        (root["id"], True),
        *((child["id"], False) for child in children),
    ]
    assert api.get(path).status_code == 404


def test_the_address_of_a_run_is_the_pages(api, live_url, workspace, project):
    run_id = uuid7()

    response = api.get(f"/v2/runs/{run_id}/url", project_id=str(project.pk), trace_id=str(run_id))

    assert response.json() == {
        "url": f"{live_url}/o/{workspace.pk}/projects/p/{project.pk}/r/{run_id}?trace_id={run_id}"
    }


@pytest.fixture
def live_url(settings):
    settings.BASE_URL = "https://slipway.example"
    return settings.BASE_URL


def test_runs_of_experiments_are_found_by_their_dataset(api, workspace):
    dataset = uuid7()
    create_project(workspace_id=workspace.pk, name="one", reference_dataset_id=dataset)
    old = datetime.now(UTC) - timedelta(days=5)
    run_id = stored_run(workspace, session_name="one", start=old, reference_example_id=str(uuid7()))

    body = {"reference_dataset_id": str(dataset), "selects": ["REFERENCE_DATASET_ID"]}

    assert items_of(api.post("/v2/runs/query", body)) == [
        {"id": str(run_id), "reference_dataset_id": str(dataset)}
    ]


def test_feedback_counts_by_when_it_was_changed(api, workspace, project):
    early, late, silent = (wire_run(name=name) for name in ("early", "late", "silent"))
    ingest(workspace, early, late, silent)
    now = datetime.now(UTC)
    for run, age in ((early, 60), (late, 10)):
        one = Feedback(workspace=workspace, project=project, run_id=run["id"], key="good", score=1)
        one.save()
        rows = Feedback.objects.for_workspace(workspace).filter(pk=one.pk)
        rows.update(modified_at=now - timedelta(minutes=age))

    def found(path="/v2/runs/query", **asked):
        where = {"project_ids": [str(project.pk)]} if "runs" in path else {}
        body = where | {"project_id": str(project.pk), "selects": ["NAME"]} | asked
        items = items_of(api.post(path, body))
        return sorted(one.get("root_run", one)["name"] for one in items)

    half = (now - timedelta(minutes=30)).isoformat()
    good = 'eq(feedback_key, "good")'
    assert found(filter=good, min_feedback_modified_at=half) == ["late"]
    assert found(filter=good, max_feedback_modified_at=half) == ["early"]
    assert found(trace_filter=good, min_feedback_modified_at=half) == ["late"]
    assert found(tree_filter=good, max_feedback_modified_at=half) == ["early"]
    assert found(filter=f"not({good})", min_feedback_modified_at=half) == ["early", "silent"]
    traces = found("/v2/traces/query", trace_filter=good, min_feedback_modified_at=half)
    assert traces == ["late"]


@pytest.mark.parametrize("path", ["/v2/runs/query", "/v2/traces/query"])
def test_times_of_feedback_need_a_condition_on_it(api, project, path):
    body = {"project_ids": [str(project.pk)]} if "runs" in path else {}
    body |= {"project_id": str(project.pk), "min_feedback_modified_at": "2026-01-01T00:00:00Z"}

    response = api.post(path, body | {"trace_filter": 'eq(name, "a")'})

    assert response.status_code == 400
    assert "need a condition on feedback" in response.json()["detail"]
