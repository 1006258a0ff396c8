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
from apps.ingest import decoders
from apps.ingest.services import ingest_runs
from apps.trace_store import Payload, run_store
from apps.trace_store.postgres.reading import pages
from apps.tracing.services import (
    create_project,
    ensure_project,
    update_project,
    upgrade_traces,
)
from tests.factories.tracing import (
    BOUNDARY,
    ingest,
    multipart_body,
    read_run,
    stored_run,
    wire_run,
)

SDK_SELECT = [
    *("app_path", "completion_cost", "completion_tokens", "dotted_order", "end_time", "error"),
    *("events", "extra", "feedback_stats", "first_token_time", "id", "inputs", "name"),
    *("outputs", "parent_run_id", "parent_run_ids", "prompt_cost", "prompt_tokens"),
    *("reference_example_id", "run_type", "s3_urls", "session_id", "start_time", "status"),
    *("tags", "total_cost", "total_tokens", "trace_id"),
]
"""The fields that the Python client selects in every list."""


def run_ids(response):
    assert response.status_code == 200, response.content
    return [run["id"] for run in response.json()["runs"]]


@pytest.mark.parametrize("method", ["get", "post"])
def test_anonymous_is_rejected(client, db, method):
    path = "/runs/query" if method == "post" else f"/runs/{uuid7()}"

    assert getattr(client, method)(path, content_type="application/json").status_code == 401


def test_an_outsider_finds_no_run(make_api, workspace, other_workspace, project):
    run_id = stored_run(workspace)
    outsider = make_api(other_workspace)

    assert outsider.get(f"/runs/{run_id}").status_code == 404
    for body in (
        {"session": [str(project.pk)]},
        {"id": [str(run_id)]},
        {"trace": str(run_id)},
        {"parent_run": str(run_id)},
    ):
        assert run_ids(outsider.post("/runs/query", body)) == []


def test_an_ingest_key_reads_no_run(make_api, workspace, project):
    run_id = stored_run(workspace)
    writer = make_api(workspace, "ingest")

    assert writer.get(f"/runs/{run_id}").status_code == 403
    assert writer.post("/runs/query", {"id": [str(run_id)]}).status_code == 403


def test_an_unknown_run_is_404(api):
    response = api.get(f"/runs/{uuid7()}")

    assert response.status_code == 404
    assert response.json()["code"] == "run_not_found"


def test_a_run_is_read_back_as_it_was_sent(api, workspace, project):
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

    read = api.get(f"/runs/{run['id']}").json()

    for field in (
        *("id", "trace_id", "parent_run_id", "dotted_order", "name", "run_type", "tags"),
        *("error", "extra", "events", "serialized", "inputs", "outputs"),
    ):
        assert read[field] == run[field], field
    assert read["start_time"] == "2026-01-02T03:04:05.678901Z"
    assert read["status"] == "error"
    assert read["session_id"] == str(project.pk)
    assert read["thread_id"] == "t-1"
    assert read["first_token_time"] == "2026-01-02T03:04:05.900000Z"
    assert read["error_preview"] == "ValueError('x') Traceback"
    assert read["child_run_ids"] is None
    assert read["app_path"] == (
        f"/o/{workspace.pk}/projects/p/{project.pk}/r/{run['id']}?trace_id={run['id']}"
        "&start_time=2026-01-02T03%3A04%3A05.678901%2B00%3A00"
    )


@pytest.mark.parametrize(
    "extra",
    [
        b"{}",
        b" { }",
        b' {"runtime": 1} ',
        b'{"metadata": {}}',
        b'{"metadata": null, "runtime": 1}',
        b'{"\\u006detadata": {}, "runtime": {"metadata": 2}}',
    ],
)
def test_later_metadata_is_part_of_the_extra_that_was_sent_before(workspace, extra):
    run = wire_run()
    patch = {"id": run["id"], "extra": {"metadata": {"a": 1}}}
    parts = [(f"post.{run['id']}", run), (f"post.{run['id']}.extra", extra)]
    ingest_runs.ingest(
        workspace.pk, decoders.decode_multipart(multipart_body(*parts), BOUNDARY.encode())
    )
    ingest_runs.ingest(workspace.pk, decoders.decode_batch(json.dumps({"patch": [patch]}).encode()))

    stored_extra = read_run(workspace, run["id"]).value(Payload.EXTRA)

    assert stored_extra == {**json.loads(extra), "metadata": {"a": 1}}


def test_the_thread_id_is_the_first_metadata_key_that_is_not_null(api, workspace):
    metadata = {"thread_id": "c", "conversation_id": 7, "session_id": None}
    run_id = stored_run(workspace, extra={"metadata": metadata})

    assert api.get(f"/runs/{run_id}").json()["thread_id"] == "7"


def test_a_tree_counts_each_token_once(api, workspace):
    def build_usage(tokens):
        return {"usage_metadata": {"input_tokens": tokens, "output_tokens": 0}}

    root = wire_run(outputs=build_usage(1000))  # passes the usage of its model run through
    wrapper = wire_run(parent=root, run_type="llm", outputs=build_usage(7))
    inner = wire_run(parent=wrapper, run_type="llm", outputs=build_usage(7))
    step = wire_run(parent=root)
    call = wire_run(parent=step, run_type="llm", outputs=build_usage(20))
    tool = wire_run(parent=root, run_type="tool", outputs=build_usage(3))
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


def test_the_session_id_selects_between_runs_with_the_same_id(api, workspace):
    run = wire_run(session_name="one", name="first")
    ingest(workspace, run)
    ingest(workspace, run | {"session_name": "two", "name": "second"})

    for name, project in (("first", "one"), ("second", "two")):
        project_id = ensure_project(workspace.pk, project).pk
        read = api.get(f"/runs/{run['id']}", session_id=str(project_id)).json()
        assert (read["name"], read["session_id"]) == (name, str(project_id))


def test_pages_have_no_gap_or_repeat_while_runs_arrive(api, workspace, project):
    now = datetime.now(UTC) - timedelta(minutes=1)
    runs = [wire_run(start=now - timedelta(days=n % 4, seconds=n // 2)) for n in range(23)]
    ingest(workspace, *runs)
    expected = [
        run["id"] for run in sorted(runs, key=lambda r: (r["start_time"], r["id"]), reverse=True)
    ]
    read_ids, cursor = [], None

    while True:
        body = {"session": [str(project.pk)], "limit": 5, "cursor": cursor, "select": ["id"]}
        page = api.post("/runs/query", body).json()
        read_ids += [run["id"] for run in page["runs"]]
        stored_run(workspace)
        cursor = page["cursors"]["next"]
        if cursor is None:
            break

    assert read_ids == expected


def test_ascending_order_lists_the_oldest_run_first(api, workspace, project):
    now = datetime.now(UTC) - timedelta(minutes=1)
    runs = [wire_run(start=now - timedelta(hours=9 * n)) for n in range(5)]
    ingest(workspace, *runs)
    body = {"session": [str(project.pk)], "order": "asc", "limit": 3}
    first = api.post("/runs/query", body)

    second = api.post("/runs/query", body | {"cursor": first.json()["cursors"]["next"]})

    assert run_ids(first) + run_ids(second) == [run["id"] for run in reversed(runs)]


def test_each_filter_limits_the_runs(api, workspace, project):
    root = wire_run(error="boom")
    child = wire_run(parent=root, run_type="tool")
    other = wire_run(start=datetime.now(UTC) - timedelta(days=2), run_type="llm")
    ingest(workspace, root, child, other)
    session = {"session": [str(project.pk)]}
    example = str(uuid7())
    ingest(workspace, wire_run(session_name="elsewhere", reference_example_id=example))

    def query_ids(**filters):
        return set(run_ids(api.post("/runs/query", filters)))

    assert query_ids(**session) == {root["id"], child["id"], other["id"]}
    assert query_ids(**session, is_root=True) == {root["id"], other["id"]}
    assert query_ids(**session, execution_order=1) == {root["id"], other["id"]}
    assert query_ids(**session, is_root=False) == {child["id"]}
    assert query_ids(**session, error=True) == {root["id"]}
    assert query_ids(**session, error=False) == {child["id"], other["id"]}
    assert query_ids(**session, run_type="tool") == {child["id"]}
    assert query_ids(trace=root["id"]) == {root["id"], child["id"]}
    assert query_ids(parent_run=root["id"]) == {child["id"]}
    assert query_ids(id=[other["id"], child["id"]], is_root=True) == {other["id"], child["id"]}
    assert query_ids(**session, start_time=root["start_time"]) >= {root["id"]}
    assert query_ids(**session, end_time=other["start_time"]) == {other["id"]}
    assert query_ids(**session, start_time=other["start_time"], end_time=other["start_time"]) == {
        other["id"]
    }
    assert len(query_ids(reference_example=example)) == 1


def test_select_omits_only_the_large_fields(api, workspace, project):
    stored_run(workspace)
    body = {"session": [str(project.pk)], "select": ["name", "inputs"]}

    (run,) = api.post("/runs/query", body).json()["runs"]

    assert run["inputs"] == {"question": "why?"}
    assert "outputs" not in run
    assert {"id", "trace_id", "start_time", "run_type", "s3_urls", "total_tokens"} <= run.keys()
    assert run["inputs_preview"] == "why?"


def test_all_fields_that_the_python_client_selects_are_returned(api, workspace, project):
    stored_run(workspace)

    response = api.post("/runs/query", {"session": [str(project.pk)], "select": SDK_SELECT})

    assert set(SDK_SELECT) <= response.json()["runs"][0].keys()


@pytest.mark.parametrize("name", ["filter", "trace_filter", "tree_filter", "search_filter"])
def test_the_error_of_a_malformed_filter_names_its_column(api, project, name):
    response = api.post("/runs/query", {"session": [str(project.pk)], name: 'eq(name, "x"'})

    assert response.status_code == 400
    assert response.json()["code"] == "filter_invalid"
    assert response.json()["detail"] == "The filter ends too early: a `)` or a `,` is missing."
    [error] = response.json()["errors"]
    assert (error["line"], error["column"]) == (1, 13)


def test_filters_on_run_root_and_tree_are_combined(api, workspace, project):
    root = wire_run(name="agent", extra={"metadata": {"thread_id": "t-1"}})
    tool = wire_run(parent=root, name="look up", run_type="tool", error="boom")
    other = wire_run(name="agent", inputs={"question": "a rare word: zyzzyva"})
    ingest(workspace, root, tool, other)
    session = {"session": [str(project.pk)]}

    def query_ids(**filters):
        return set(run_ids(api.post("/runs/query", session | filters)))

    assert query_ids(filter='eq(name, "agent")') == {root["id"], other["id"]}
    assert query_ids(filter='eq(name, "agent")', tree_filter="neq(error, null)") == {root["id"]}
    assert query_ids(trace_filter='eq(thread_id, "t-1")', run_type="tool") == {tool["id"]}
    assert query_ids(filter='eq(name, "agent")', search_filter='search("zyzzyva")') == {other["id"]}
    assert query_ids(id=[tool["id"]], filter='eq(name, "agent")') == {tool["id"]}


def test_a_plain_text_query_is_parsed_as_a_search(api, workspace, project):
    run_id = stored_run(workspace, inputs={"question": "a rare word: zyzzyva"})
    stored_run(workspace)

    response = api.post("/runs/query", {"session": [str(project.pk)], "query": "zyzzyva"})

    assert run_ids(response) == [str(run_id)]
    assert response.json()["parsed_query"] == 'search("zyzzyva")'


def test_runs_of_experiments_are_queried_by_their_dataset(api, workspace, project):
    dataset = uuid7()
    experiment = create_project(
        workspace_id=workspace.pk, name="experiment", reference_dataset_id=dataset
    )
    example = str(uuid7())
    run_id = stored_run(workspace, session_name="experiment", reference_example_id=example)
    stored_run(workspace)

    response = api.post("/runs/query", {"reference_dataset_id": str(dataset)})

    assert run_ids(response) == [str(run_id)]
    assert response.json()["runs"][0]["reference_dataset_id"] == str(dataset)
    both = {"reference_dataset_id": str(dataset), "session": [str(project.pk)]}
    assert run_ids(api.post("/runs/query", both)) == []
    assert run_ids(api.post("/runs/query", both | {"session": [str(experiment.pk)]})) == [
        str(run_id)
    ]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_the_previous_cursor_leads_to_the_previous_page(api, workspace, project, order):
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


def test_cursors_are_omitted_on_request(api, workspace, project):
    ingest(workspace, wire_run(), wire_run(), wire_run())
    body = {"session": [str(project.pk)], "limit": 1}
    cursor = api.post("/runs/query", body).json()["cursors"]["next"]

    skipped = api.post("/runs/query", body | {"skip_pagination": True}).json()
    forward = api.post("/runs/query", body | {"cursor": cursor, "skip_prev_cursor": True}).json()

    assert skipped["cursors"] == {"next": None, "prev": None}
    assert forward["cursors"]["prev"] is None
    assert forward["cursors"]["next"] is not None


def test_a_query_is_validated_without_being_run(api, project):
    session = {"session": [str(project.pk)]}

    good = api.post("/runs/query/validate", session | {"filter": 'eq(name, "x")'})
    bad = api.post("/runs/query/validate", session | {"filter": "eq(name)"})
    odd = api.post("/runs/query/validate", session | {"limit": 0})

    assert good.json() == {"valid": True, "detail": None, "errors": []}
    assert (bad.json()["valid"], bad.json()["errors"][0]["line"]) == (False, 1)
    assert odd.json()["errors"][0]["field"] == "limit"


def test_the_turns_of_a_thread_are_read_oldest_first(api, workspace, other_workspace, make_api):
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
    assert make_api(other_workspace).get(path).status_code == 404


def test_retention_and_trace_times_are_selected_with_a_run(api, workspace, project):
    update_project(project=project, changes={"trace_tier": "shortlived"})
    kept, plain = wire_run(), wire_run()
    ingest(workspace, kept, plain)
    upgrade_traces(workspace.pk, [UUID(kept["id"])])
    select = ["trace_tier", "trace_upgrade", "ttl_seconds", "trace_min_max_start_time"]

    rows = api.post("/runs/query", {"session": [str(project.pk)], "select": select}).json()["runs"]

    by_id = {row["id"]: row for row in rows}
    fields = ("trace_tier", "trace_upgrade", "ttl_seconds")
    assert [by_id[kept["id"]][name] for name in fields] == ["longlived", True, 400 * 86_400]
    assert [by_id[plain["id"]][name] for name in fields] == ["shortlived", False, 14 * 86_400]
    assert by_id[plain["id"]]["trace_min_start_time"] == by_id[plain["id"]]["start_time"]


def test_messages_are_included_on_request(api, workspace):
    run_id = stored_run(
        workspace,
        inputs={"messages": [{"role": "user", "content": "why?"}]},
        outputs={"messages": [{"role": "assistant", "content": "because"}]},
    )

    messages = api.get(f"/runs/{run_id}", include_messages="True").json()["messages"]

    assert [(message["role"], message["content"][0]["text"]) for message in messages] == [
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
def test_times_at_the_limits_of_the_calendar_are_handled(api, project, bounds):
    response = api.post("/runs/query", {"session": [str(project.pk)], **bounds})

    assert response.status_code in {200, 422}


def test_a_query_without_a_scope_is_rejected(api):
    assert api.post("/runs/query", {"is_root": True}).status_code == 400


def test_a_limit_above_the_maximum_is_reduced_to_it(api, workspace, project):
    root = wire_run()
    ingest(workspace, root, *(wire_run(parent=root) for _ in range(104)))
    session = {"session": [str(project.pk)], "select": ["id"]}

    assert len(run_ids(api.post("/runs/query", session | {"limit": 5000}))) == 100
    assert (
        len(run_ids(api.post("/runs/query", session | {"trace": root["id"], "limit": 10}))) == 105
    )


@pytest.mark.parametrize("cursor", ["x", "AAAA", "ÿ", "A" * 32, "f" * 500])
def test_an_invalid_cursor_is_rejected(api, project, cursor):
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
def test_an_invalid_body_is_rejected(api, project, body):
    if isinstance(body, dict):
        body = {"session": [str(project.pk)], **body}

    response = api.post("/runs/query", json.dumps(body))

    assert response.status_code in {400, 422}


def test_the_number_of_queries_does_not_grow_with_the_runs(api, workspace, project, monkeypatch):
    statements = []

    class Counted(psycopg.Cursor):
        def execute(self, *args, **kwargs):
            statements.append(args[0])
            return super().execute(*args, **kwargs)

    api.post("/runs/query", {"session": [str(project.pk)]})  # records the first use of the key
    monkeypatch.setattr(pages.psycopg, "Cursor", Counted)
    costs = []
    for _ in range(2):
        root = wire_run()
        ingest(workspace, *[root, *(wire_run(parent=root) for _ in range(10))])
        statements.clear()

        with CaptureQueriesContext(connection) as queries:
            api.post("/runs/query", {"session": [str(project.pk)], "select": SDK_SELECT})

        # The key is cached for some seconds, so its query may or may not be repeated.
        other_queries = [query for query in queries if '"api_keys_apikey"' not in query["sql"]]
        costs.append((len(statements), len(other_queries)))

    assert costs[0] == costs[1]
    # Runs, pending runs, usage of child runs, payloads, feedback, shares and tiers.
    assert sum(costs[0]) <= 14


def test_existing_returns_only_runs_of_the_workspace(workspace, other_workspace):
    own_run, foreign_run = stored_run(workspace), stored_run(other_workspace)

    assert run_store.find_existing_ids(workspace.pk, [own_run, foreign_run, UUID(int=0)]) == {
        own_run
    }
