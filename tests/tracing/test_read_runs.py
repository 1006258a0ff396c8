"""GET /runs/{id} and POST /runs/query."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.core.ids import uuid7
from apps.trace_store import run_store
from apps.trace_store.postgres import database
from apps.tracing.services import (
    create_project,
    ensure_project,
    update_project,
    upgrade_traces,
)
from tests.factories.tracing import ingest, stored_run, wire_run

SDK_SELECT = [
    *("app_path", "completion_cost", "completion_tokens", "dotted_order", "end_time", "error"),
    *("events", "extra", "feedback_stats", "first_token_time", "id", "inputs", "name"),
    *("outputs", "parent_run_id", "parent_run_ids", "prompt_cost", "prompt_tokens"),
    *("reference_example_id", "run_type", "s3_urls", "session_id", "start_time", "status"),
    *("tags", "total_cost", "total_tokens", "trace_id"),
]
"""As the Python client sends it with every list."""


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


def ids_of(response):
    assert response.status_code == 200, response.content
    return [run["id"] for run in response.json()["runs"]]


@pytest.mark.parametrize("method", ["get", "post"])
def test_anonymous_is_refused(client, db, method):
    path = "/runs/query" if method == "post" else f"/runs/{uuid7()}"

    assert getattr(client, method)(path, content_type="application/json").status_code == 401


def test_a_stranger_finds_nothing(api_of, workspace, stranger, project):
    run_id = stored_run(workspace)
    outsider = api_of(stranger)

    assert outsider.get(f"/runs/{run_id}").status_code == 404
    for body in (
        {"session": [str(project.pk)]},
        {"id": [str(run_id)]},
        {"trace": str(run_id)},
        {"parent_run": str(run_id)},
    ):
        assert ids_of(outsider.post("/runs/query", body)) == []


def test_an_ingest_key_reads_nothing(api_of, workspace, project):
    run_id = stored_run(workspace)
    writer = api_of(workspace, "ingest")

    assert writer.get(f"/runs/{run_id}").status_code == 403
    assert writer.post("/runs/query", {"id": [str(run_id)]}).status_code == 403


def test_an_unknown_run_is_404(api):
    response = api.get(f"/runs/{uuid7()}")

    assert response.status_code == 404
    assert response.json()["code"] == "run_not_found"


def test_a_run_comes_back_as_it_was_sent(api, workspace, project):
    start = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    run = wire_run(
        start=start,
        run_type="llm",
        tags=["b", "a"],
        error="ValueError('x')\n\nTraceback",
        extra={"metadata": {"thread_id": "t-1", "ls_model_name": "m"}, "runtime": {"sdk": "x"}},
        events=[{"name": "new_token", "time": "2026-01-02T03:04:05.9+00:00"}],
        serialized={"lc": 1},
    )
    ingest(workspace, run)

    got = api.get(f"/runs/{run['id']}").json()

    for field in (
        *("id", "trace_id", "parent_run_id", "dotted_order", "name", "run_type", "tags"),
        *("error", "extra", "events", "serialized", "inputs", "outputs"),
    ):
        assert got[field] == run[field], field
    assert got["start_time"] == "2026-01-02T03:04:05.678901Z"
    assert got["status"] == "error"
    assert got["session_id"] == str(project.pk)
    assert got["thread_id"] == "t-1"
    assert got["first_token_time"] == "2026-01-02T03:04:05.900000Z"
    assert got["error_preview"] == "ValueError('x') Traceback"
    assert got["child_run_ids"] is None
    assert got["app_path"].startswith(
        f"/o/{workspace.pk}/projects/p/{project.pk}/r/{run['id']}?trace_id={run['id']}"
    )


def test_the_thread_is_the_first_key_that_is_not_null(api, workspace):
    metadata = {"thread_id": "c", "conversation_id": 7, "session_id": None}
    run_id = stored_run(workspace, extra={"metadata": metadata})

    assert api.get(f"/runs/{run_id}").json()["thread_id"] == "7"


def test_a_tree_shows_each_token_once(api, workspace):
    def said(tokens):
        return {"usage_metadata": {"input_tokens": tokens, "output_tokens": 0}}

    root = wire_run(outputs=said(1000))  # an answer passed through
    wrapper = wire_run(parent=root, run_type="llm", outputs=said(7))
    inner = wire_run(parent=wrapper, run_type="llm", outputs=said(7))
    step = wire_run(parent=root)
    call = wire_run(parent=step, run_type="llm", outputs=said(20))
    tool = wire_run(parent=root, run_type="tool", outputs=said(3))
    ingest(workspace, root, wrapper, inner, step, call, tool)

    rows = api.post("/runs/query", {"trace": root["id"]}).json()["runs"]

    tokens = {row["id"]: row["total_tokens"] for row in rows}
    assert tokens == {
        root["id"]: 30,
        wrapper["id"]: 7,
        inner["id"]: 7,
        step["id"]: 20,
        call["id"]: 20,
        tool["id"]: 3,
    }
    for run_id, total in tokens.items():
        assert api.get(f"/runs/{run_id}").json()["total_tokens"] == total


def test_the_same_id_in_two_projects_is_told_apart_by_the_session(api, workspace):
    run = wire_run(session_name="one", name="first")
    ingest(workspace, run)
    ingest(workspace, run | {"session_name": "two", "name": "second"})

    for name, project in (("first", "one"), ("second", "two")):
        project_id = ensure_project(workspace.pk, project).pk
        got = api.get(f"/runs/{run['id']}", session_id=str(project_id)).json()
        assert (got["name"], got["session_id"]) == (name, str(project_id))


def test_pages_lead_on_without_gap_or_repeat_while_runs_arrive(api, workspace, project):
    now = datetime.now(UTC) - timedelta(minutes=1)
    runs = [wire_run(start=now - timedelta(days=n % 4, seconds=n // 2)) for n in range(23)]
    ingest(workspace, *runs)
    expected = [
        run["id"] for run in sorted(runs, key=lambda r: (r["start_time"], r["id"]), reverse=True)
    ]
    seen, cursor = [], None

    while True:
        body = {"session": [str(project.pk)], "limit": 5, "cursor": cursor, "select": ["id"]}
        page = api.post("/runs/query", body).json()
        seen += [run["id"] for run in page["runs"]]
        stored_run(workspace)
        cursor = page["cursors"]["next"]
        if cursor is None:
            break

    assert seen == expected


def test_oldest_first_is_the_other_way_round(api, workspace, project):
    now = datetime.now(UTC) - timedelta(minutes=1)
    runs = [wire_run(start=now - timedelta(hours=9 * n)) for n in range(5)]
    ingest(workspace, *runs)
    body = {"session": [str(project.pk)], "order": "asc", "limit": 3}
    first = api.post("/runs/query", body)

    second = api.post("/runs/query", body | {"cursor": first.json()["cursors"]["next"]})

    assert ids_of(first) + ids_of(second) == [run["id"] for run in reversed(runs)]


def test_each_filter_limits(api, workspace, project):
    root = wire_run(error="boom")
    child = wire_run(parent=root, run_type="tool")
    other = wire_run(start=datetime.now(UTC) - timedelta(days=2), run_type="llm")
    ingest(workspace, root, child, other)
    session = {"session": [str(project.pk)]}
    example = str(uuid7())
    ingest(workspace, wire_run(session_name="elsewhere", reference_example_id=example))

    def found(**filters):
        return set(ids_of(api.post("/runs/query", filters)))

    assert found(**session) == {root["id"], child["id"], other["id"]}
    assert found(**session, is_root=True) == {root["id"], other["id"]}
    assert found(**session, execution_order=1) == {root["id"], other["id"]}
    assert found(**session, is_root=False) == {child["id"]}
    assert found(**session, error=True) == {root["id"]}
    assert found(**session, error=False) == {child["id"], other["id"]}
    assert found(**session, run_type="tool") == {child["id"]}
    assert found(trace=root["id"]) == {root["id"], child["id"]}
    assert found(parent_run=root["id"]) == {child["id"]}
    assert found(id=[other["id"], child["id"]], is_root=True) == {other["id"], child["id"]}
    assert found(**session, start_time=root["start_time"]) >= {root["id"]}
    assert found(**session, end_time=other["start_time"]) == {other["id"]}
    assert found(**session, start_time=other["start_time"], end_time=other["start_time"]) == {
        other["id"]
    }
    assert len(found(reference_example=example)) == 1


def test_select_leaves_out_the_heavy_fields_only(api, workspace, project):
    stored_run(workspace)
    body = {"session": [str(project.pk)], "select": ["name", "inputs"]}

    (run,) = api.post("/runs/query", body).json()["runs"]

    assert run["inputs"] == {"question": "why?"}
    assert "outputs" not in run
    assert {"id", "trace_id", "start_time", "run_type", "s3_urls", "total_tokens"} <= run.keys()
    assert run["inputs_preview"] == "why?"


def test_what_the_python_client_selects_is_understood(api, workspace, project):
    stored_run(workspace)

    response = api.post("/runs/query", {"session": [str(project.pk)], "select": SDK_SELECT})

    assert set(SDK_SELECT) <= response.json()["runs"][0].keys()


@pytest.mark.parametrize("name", ["filter", "trace_filter", "tree_filter", "search_filter"])
def test_a_filter_that_makes_no_sense_is_told_by_its_column(api, project, name):
    response = api.post("/runs/query", {"session": [str(project.pk)], name: 'eq(name, "x"'})

    assert response.status_code == 400
    assert response.json()["code"] == "filter_invalid"
    assert "column 13" in response.json()["detail"]


def test_filters_of_the_run_its_root_and_its_tree_must_all_hold(api, workspace, project):
    root = wire_run(name="agent", extra={"metadata": {"thread_id": "t-1"}})
    tool = wire_run(parent=root, name="look up", run_type="tool", error="boom")
    other = wire_run(name="agent", inputs={"question": "a rare word: zyzzyva"})
    ingest(workspace, root, tool, other)
    session = {"session": [str(project.pk)]}

    def found(**filters):
        return set(ids_of(api.post("/runs/query", session | filters)))

    assert found(filter='eq(name, "agent")') == {root["id"], other["id"]}
    assert found(filter='eq(name, "agent")', tree_filter="neq(error, null)") == {root["id"]}
    assert found(trace_filter='eq(thread_id, "t-1")', run_type="tool") == {tool["id"]}
    assert found(filter='eq(name, "agent")', search_filter='search("zyzzyva")') == {other["id"]}
    assert found(id=[tool["id"]], filter='eq(name, "agent")') == {tool["id"]}


def test_words_in_plain_language_are_looked_for_and_the_answer_says_so(api, workspace, project):
    run_id = stored_run(workspace, inputs={"question": "a rare word: zyzzyva"})
    stored_run(workspace)

    response = api.post("/runs/query", {"session": [str(project.pk)], "query": "zyzzyva"})

    assert ids_of(response) == [str(run_id)]
    assert response.json()["parsed_query"] == 'search("zyzzyva")'


def test_the_runs_of_a_datasets_experiments_are_found_by_the_dataset(api, workspace, project):
    dataset = uuid7()
    experiment = create_project(
        workspace_id=workspace.pk, name="experiment", reference_dataset_id=dataset
    )
    example = str(uuid7())
    run_id = stored_run(workspace, session_name="experiment", reference_example_id=example)
    stored_run(workspace)

    response = api.post("/runs/query", {"reference_dataset_id": str(dataset)})

    assert ids_of(response) == [str(run_id)]
    assert response.json()["runs"][0]["reference_dataset_id"] == str(dataset)
    both = {"reference_dataset_id": str(dataset), "session": [str(project.pk)]}
    assert ids_of(api.post("/runs/query", both)) == []
    assert ids_of(api.post("/runs/query", both | {"session": [str(experiment.pk)]})) == [
        str(run_id)
    ]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_page_leads_back_to_the_one_before(api, workspace, project, order):
    now = datetime.now(UTC) - timedelta(minutes=1)
    ingest(workspace, *(wire_run(start=now - timedelta(hours=n)) for n in range(7)))
    body = {"session": [str(project.pk)], "order": order, "limit": 3, "select": ["id"]}
    pages, cursor = [], None
    for _ in range(3):
        pages.append(api.post("/runs/query", body | {"cursor": cursor}).json())
        cursor = pages[-1]["cursors"]["next"]

    second = api.post("/runs/query", body | {"cursor": pages[2]["cursors"]["prev"]}).json()
    first = api.post("/runs/query", body | {"cursor": second["cursors"]["prev"]}).json()

    assert pages[0]["cursors"]["prev"] is None
    assert (second["runs"], first["runs"]) == (pages[1]["runs"], pages[0]["runs"])
    assert first["cursors"]["prev"] is None
    again = api.post("/runs/query", body | {"cursor": second["cursors"]["next"]}).json()
    assert again["runs"] == pages[2]["runs"]


def test_a_client_that_wants_no_cursors_gets_none(api, workspace, project):
    ingest(workspace, wire_run(), wire_run(), wire_run())
    body = {"session": [str(project.pk)], "limit": 1}
    cursor = api.post("/runs/query", body).json()["cursors"]["next"]

    skipped = api.post("/runs/query", body | {"skip_pagination": True}).json()
    forward = api.post("/runs/query", body | {"cursor": cursor, "skip_prev_cursor": True}).json()

    assert skipped["cursors"] == {"next": None, "prev": None}
    assert forward["cursors"]["prev"] is None
    assert forward["cursors"]["next"] is not None


def test_a_query_is_validated_without_being_asked(api, project):
    session = {"session": [str(project.pk)]}

    good = api.post("/runs/query/validate", session | {"filter": 'eq(name, "x")'})
    bad = api.post("/runs/query/validate", session | {"filter": "eq(name)"})
    odd = api.post("/runs/query/validate", session | {"limit": 0})

    assert good.json() == {"valid": True, "detail": None, "errors": []}
    assert (bad.json()["valid"], bad.json()["errors"][0]["line"]) == (False, 1)
    assert odd.json()["errors"][0]["field"] == "limit"


def test_the_turns_of_a_thread_are_read_oldest_first(api, workspace, stranger, api_of):
    now = datetime.now(UTC) - timedelta(minutes=1)
    of_thread = {"extra": {"metadata": {"thread_id": 'a/b "c"'}}}
    turns = [wire_run(start=now - timedelta(hours=3 - n), **of_thread) for n in range(3)]
    ingest(workspace, *turns, wire_run(parent=turns[0], **of_thread), wire_run())
    path = "/runs/threads/a%2Fb%20%22c%22"

    whole = api.get(path).json()
    part = api.get(path, limit=1, offset=1, select="inputs").json()

    assert [run["id"] for run in whole["runs"]] == [turn["id"] for turn in turns]
    assert "inputs" not in whole["runs"][0]
    assert [(run["id"], run["inputs"]) for run in part["runs"]] == [
        (turns[1]["id"], {"question": "why?"})
    ]
    assert api_of(stranger).get(path).status_code == 404


def test_what_is_known_beside_a_run_is_shown_with_it(api, workspace, project):
    update_project(project=project, changes={"trace_tier": "shortlived"})
    kept, plain = wire_run(), wire_run()
    ingest(workspace, kept, plain)
    upgrade_traces(workspace.pk, [UUID(kept["id"])])
    select = ["trace_tier", "trace_upgrade", "ttl_seconds", "trace_min_max_start_time"]

    rows = api.post("/runs/query", {"session": [str(project.pk)], "select": select}).json()["runs"]

    by_id = {row["id"]: row for row in rows}
    told = ("trace_tier", "trace_upgrade", "ttl_seconds")
    assert [by_id[kept["id"]][name] for name in told] == ["longlived", True, 400 * 86_400]
    assert [by_id[plain["id"]][name] for name in told] == ["shortlived", False, 14 * 86_400]
    assert by_id[plain["id"]]["trace_min_start_time"] == by_id[plain["id"]]["start_time"]


def test_messages_are_told_on_request(api, workspace):
    run_id = stored_run(
        workspace,
        inputs={"messages": [{"role": "user", "content": "why?"}]},
        outputs={"messages": [{"role": "assistant", "content": "because"}]},
    )

    told = api.get(f"/runs/{run_id}", include_messages="True").json()["messages"]

    assert [(one["role"], one["content"][0]["text"]) for one in told] == [
        ("human", "why?"),
        ("ai", "because"),
    ]
    assert "messages" not in api.get(f"/runs/{run_id}").json()


@pytest.mark.parametrize(
    "bounds",
    [
        {"start_time": "0001-01-01T00:00:00"},
        {"end_time": "9999-12-31T23:59:59.999999"},
        {"start_time": "0001-01-01T00:00:00+14:00"},
        {"start_time": "9999-12-31T23:59:59-12:00"},
    ],
)
def test_times_at_the_end_of_the_calendar_break_nothing(api, project, bounds):
    response = api.post("/runs/query", {"session": [str(project.pk)], **bounds})

    assert response.status_code in {200, 422}


def test_a_query_of_everything_is_refused(api):
    assert api.post("/runs/query", {"is_root": True}).status_code == 400


def test_a_limit_above_the_largest_is_a_page(api, workspace, project):
    root = wire_run()
    ingest(workspace, root, *(wire_run(parent=root) for _ in range(104)))
    session = {"session": [str(project.pk)], "select": ["id"]}

    assert len(ids_of(api.post("/runs/query", session | {"limit": 5000}))) == 100
    assert len(ids_of(api.post("/runs/query", session | {"trace": root["id"], "limit": 10}))) == 105


@pytest.mark.parametrize("cursor", ["x", "AAAA", "ÿ", "A" * 32, "f" * 500])
def test_a_cursor_of_somebody_else_is_refused(api, project, cursor):
    response = api.post("/runs/query", {"session": [str(project.pk)], "cursor": cursor})

    assert response.status_code in {200, 400}
    if response.status_code == 400:
        assert response.json()["code"] == "invalid_cursor"


@pytest.mark.parametrize(
    "body",
    [
        {"session": "x"},
        {"session": [[]]},
        {"id": {}},
        {"select": ["nonsense"]},
        {"limit": 0},
        {"order": "up"},
        {"run_type": "agent"},
        [],
        "x",
    ],
)
def test_a_body_that_makes_no_sense_is_refused(api, project, body):
    if isinstance(body, dict):
        body = {"session": [str(project.pk)], **body}

    response = api.post("/runs/query", json.dumps(body))

    assert response.status_code in {400, 422}


def test_a_list_costs_the_same_number_of_queries_at_any_length(
    api, workspace, project, monkeypatch
):
    asked = []

    class Counted(psycopg.Cursor):
        def execute(self, *args, **kwargs):
            asked.append(args[0])
            return super().execute(*args, **kwargs)

    api.post("/runs/query", {"session": [str(project.pk)]})  # the key's first use is written down
    monkeypatch.setattr(database.psycopg, "Cursor", Counted)
    costs = []
    for _ in range(2):
        root = wire_run()
        ingest(workspace, *[root, *(wire_run(parent=root) for _ in range(10))])
        asked.clear()

        with CaptureQueriesContext(connection) as queries:
            api.post("/runs/query", {"session": [str(project.pk)], "select": SDK_SELECT})

        # A key is remembered for some seconds, which may or may not be over.
        others = [one for one in queries if '"api_keys_apikey"' not in one["sql"]]
        costs.append((len(asked), len(others)))

    assert costs[0] == costs[1]
    # The runs, what is unsettled and the usage below them, payloads, feedback; shares, tiers.
    assert sum(costs[0]) <= 14


def test_existing_tells_own_runs_from_foreign_ones(workspace, stranger):
    own, theirs = stored_run(workspace), stored_run(stranger)

    assert run_store.existing(workspace.pk, [own, theirs, UUID(int=0)]) == {own}
