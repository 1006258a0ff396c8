"""Threads of API v2."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.feedback.models import Feedback
from apps.trace_store.filters import fields
from tests.factories.tracing import ingest, wire_run
from tests.tracing.stats.populations import process_pending_runs

NOW = datetime.now(UTC)


def build_turn(thread, minutes, **fields):
    metadata = {"thread_id": thread}
    start = NOW - timedelta(minutes=minutes)
    return wire_run(start=start, extra={"metadata": metadata}, **fields)


def build_model_run(parent, minutes, tokens):
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_cost": 0.25}
    start = NOW - timedelta(minutes=minutes)
    return wire_run(parent, run_type="llm", start=start, outputs={"usage_metadata": usage})


def post_query(api, path, project, **body):
    response = api.post(path, {"project_id": str(project.pk)} | body)
    assert response.status_code == 200, response.content
    return response.json()


def test_an_outsider_finds_no_thread(make_api, workspace, other_workspace, project):
    ingest(workspace, build_turn("a", 5))
    outsider = make_api(other_workspace)
    project_filter = {"project_id": str(project.pk)}

    assert outsider.post("/v2/threads/query", project_filter).status_code == 404
    assert outsider.post("/v2/threads/stats", project_filter).status_code == 404
    assert outsider.get("/v2/threads/a/traces", **project_filter).status_code == 404
    assert outsider.get("/v2/threads/a/stats", session_id=str(project.pk)).status_code == 404


def test_threads_are_listed_newest_first_with_the_statistics_of_their_turns(
    api, workspace, project
):
    first, last = build_turn("a", 30, inputs={"q": "hello"}), build_turn("a", 10, error="boom")
    ingest(
        workspace,
        first,
        build_model_run(first, 30, 4),
        last,
        build_turn("b", 20),
        wire_run(),
        build_turn("c", 3000),
    )

    page = post_query(api, "/v2/threads/query", project)

    assert [thread["thread_id"] for thread in page["items"]] == ["a", "b"]
    thread = page["items"][0]
    assert (thread["count"], thread["num_errored_turns"], thread["total_tokens"]) == (2, 1, 5)
    assert (thread["total_cost"], thread["latency_p50"]) == (0.25, 1.0)
    assert (thread["first_trace_id"], thread["last_trace_id"]) == (first["id"], last["id"])
    assert (thread["first_inputs"], thread["last_error"]) == ("hello", "boom")
    assert page["next_cursor"] is None


def test_threads_are_paged_while_turns_arrive(api, workspace, project):
    ingest(workspace, *(build_turn(f"t{n}", n + 1) for n in range(5)))
    thread_ids, cursor, pages = [], None, 0

    while pages == 0 or cursor:
        page = post_query(api, "/v2/threads/query", project, page_size=2, cursor=cursor)
        thread_ids += [thread["thread_id"] for thread in page["items"]]
        ingest(workspace, wire_run(start=datetime.now(UTC), extra={"metadata": {"thread_id": "x"}}))
        cursor, pages = page["next_cursor"], pages + 1

    assert (pages, thread_ids) == (3, ["t0", "t1", "t2", "t3", "t4"])


def test_threads_are_filtered_by_their_turns(api, workspace, project):
    root = build_turn("a", 30, name="agent")
    ingest(workspace, root, build_model_run(root, 30, 4), build_turn("b", 20))

    def query_thread_ids(**body):
        return [
            thread["thread_id"]
            for thread in post_query(api, "/v2/threads/query", project, **body)["items"]
        ]

    assert query_thread_ids(filter='eq(name, "agent")') == ["a"]
    assert query_thread_ids(trace_filter='eq(name, "agent")', filter='eq(name, "x")') == []
    assert query_thread_ids(tree_filter='eq(run_type, "llm")') == ["a"]
    assert query_thread_ids(max_start_time=(NOW - timedelta(minutes=25)).isoformat()) == ["a"]


def test_the_turns_of_a_thread_are_numbered_from_the_first(api, workspace, project):
    turns = [build_turn("a/b", minutes, name=f"turn {minutes}") for minutes in (9000, 20, 10)]
    ingest(workspace, *turns)
    query = {"project_id": str(project.pk), "selects": ["NAME", "TURN_NUMBER", "LATENCY"]}

    first = api.get("/v2/threads/a%2Fb/traces", page_size=2, **query).json()
    rest = api.get("/v2/threads/a%2Fb/traces", cursor=first["next_cursor"], **query).json()

    assert [*first["items"], *rest["items"]] == [
        {"trace_id": turns[2]["id"], "name": "turn 10", "turn_number": 3, "latency": 1.0},
        {"trace_id": turns[1]["id"], "name": "turn 20", "turn_number": 2, "latency": 1.0},
        {"trace_id": turns[0]["id"], "name": "turn 9000", "turn_number": 1, "latency": 1.0},
    ]
    assert rest["next_cursor"] is None
    plain = api.get("/v2/threads/a%2Fb/traces", project_id=str(project.pk)).json()["items"]
    assert plain[0] == {"trace_id": turns[2]["id"]}


def test_the_statistics_of_a_thread_count_its_turns(api, workspace, project):
    first_turn, second_turn = build_turn("a", 30), build_turn("a", 20)
    ingest(
        workspace,
        first_turn,
        build_model_run(first_turn, 30, 4),
        second_turn,
        build_model_run(second_turn, 20, 6),
        build_turn("b", 5),
    )
    selects = ["TURNS", "TOTAL_TOKENS", "TOTAL_COST", "LATENCY_P99", "FIRST_START_TIME"]
    query = {"session_id": str(project.pk), "selects": selects}

    stats = api.get("/v2/threads/a/stats", **query).json()
    narrowed = api.get(
        "/v2/threads/a/stats", filter=f'eq(id, "{second_turn["id"]}")', **query
    ).json()
    missing = api.get("/v2/threads/none/stats", **query).json()

    start = datetime.fromisoformat(stats.pop("first_start_time"))
    assert start == datetime.fromisoformat(first_turn["start_time"])
    assert stats == {
        "turns": 2,
        "total_tokens": 12,
        "total_cost": 0.5,
        "latency_p99_seconds": 1.0,
    }
    assert (narrowed["turns"], narrowed["total_tokens"]) == (1, 7)
    assert (missing["turns"], missing["first_start_time"]) == (0, None)


def test_the_statistics_of_all_threads_are_aggregated(api, workspace, project):
    first_turn = build_turn("a", 30)
    ingest(
        workspace,
        first_turn,
        build_model_run(first_turn, 30, 4),
        build_turn("a", 20),
        build_turn("b", 5, error="x"),
        wire_run(),
    )
    select = ["THREAD_COUNT", "TRACE_COUNT", "TOTAL_TOKENS", "ERROR_RATE", "LATENCY_P50"]

    stats = post_query(api, "/v2/threads/stats", project, select=select)

    assert stats.pop("error_rate") == pytest.approx(1 / 3)
    assert stats.pop("latency_p50_seconds") == pytest.approx(1.0, rel=0.01)
    assert stats == {"thread_count": 2, "trace_count": 3, "total_tokens": 5}


@pytest.mark.parametrize("cursor", ["x", "AAAA", "WzEsMl0", "é" * 5, "W10"])
def test_an_invalid_cursor_of_threads_is_rejected(api, project, cursor):
    body = {"project_id": str(project.pk), "cursor": cursor}

    response = api.post("/v2/threads/query", body)

    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


@pytest.fixture
def threads(workspace, project):
    """Thread `a` has two turns with 11 tokens, the first failed; `b` has one two-second turn."""
    first, last = (
        build_turn("a", 30, error="boom", name="first"),
        build_turn("a", 10, inputs={"q": "bye"}),
    )
    end = NOW - timedelta(minutes=20) + timedelta(seconds=2)
    other = build_turn("b", 20, end_time=end.isoformat(), outputs={"a": "so"})
    ingest(
        workspace,
        first,
        build_model_run(first, 30, 4),
        last,
        build_model_run(last, 10, 5),
        other,
        wire_run(),
    )
    Feedback(workspace=workspace, project=project, thread_key="b", key="good", score=1).save()
    return first, last, other


@pytest.mark.parametrize(
    ("thread_filter", "expected"),
    [
        ("gt(count, 1)", ["a"]),
        ("eq(turns, 1)", ["b"]),
        ("gte(num_errored_turns, 1)", ["a"]),
        ("eq(total_tokens, 11)", ["a"]),
        ("gt(total_tokens, 0)", ["a"]),
        ("eq(total_cost, 0.5)", ["a"]),
        ('gt(latency_p50, "1500ms")', ["b"]),
        ("lte(latency_p99, 1)", ["a"]),
        ('ilike(last_outputs, "%SO%")', ["b"]),
        ("is_null(last_error)", ["a", "b"]),
        ('eq(last_outputs, "so")', ["b"]),
        ('in(thread_id, ["a", "c"])', ["a"]),
        ('and(eq(feedback_key, "good"), gt(feedback_score, 0.5))', ["b"]),
        ('not(eq(feedback_key, "good"))', ["a"]),
        ('or(eq(count, 2), eq(feedback_key, "good"))', ["a", "b"]),
        ("and(gt(count, 1), eq(num_errored_turns, 0))", []),
        ('gt(max_start_time, "2000-01-01")', ["a", "b"]),
    ],
)
def test_threads_are_filtered_by_their_statistics(api, project, threads, thread_filter, expected):
    process_pending_runs()

    page = post_query(api, "/v2/threads/query", project, thread_filter=thread_filter)

    assert [thread["thread_id"] for thread in page["items"]] == expected


def test_a_matching_thread_has_the_statistics_of_all_its_turns(api, project, threads):
    filters = {"filter": 'eq(name, "first")', "thread_filter": "eq(count, 2)"}

    (thread,) = post_query(api, "/v2/threads/query", project, **filters)["items"]
    stats = post_query(
        api, "/v2/threads/stats", project, select=["THREAD_COUNT"], thread_filter="eq(count, 1)"
    )

    assert (thread["thread_id"], thread["count"], thread["num_errored_turns"]) == ("a", 2, 1)
    assert stats == {"thread_count": 1}


@pytest.mark.parametrize(
    ("thread_filter", "message"),
    [
        ('eq(run_type, "llm")', "There is no field `run_type`"),
        ('search("x")', "Filters of threads do not support"),
        ('gt(count, "many")', "`many` is not a number."),
    ],
)
def test_a_thread_filter_on_another_field_is_rejected(api, project, thread_filter, message):
    body = {"project_id": str(project.pk), "thread_filter": thread_filter}

    response = api.post("/v2/threads/query", body)

    assert (response.status_code, response.json()["code"]) == (400, "filter_invalid")
    assert message in response.json()["detail"]


def test_the_specification_lists_the_fields_of_threads():
    document = (Path(__file__).parents[2] / "docs/filter-language.md").read_text()
    section = document.split("## Filters of threads")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z0-9_`, ]+`) \| ([a-z, ]+) \|", section, re.MULTILINE)

    documented = {tuple(re.findall(r"`([a-z0-9_]+)`", names)): kind for names, kind in rows}

    thread_fields = [field for field in fields.THREAD_FIELDS if field.items is None]
    assert documented == {(field.name, *field.aliases): str(field.kind) for field in thread_fields}
