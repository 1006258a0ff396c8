"""Threads of the second protocol."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.feedback.models import Feedback
from apps.trace_store.filters import fields
from apps.tracing.services import ensure_project
from tests.factories.tracing import ingest, wire_run
from tests.tracing.stats.populations import settle

NOW = datetime.now(UTC)


@pytest.fixture
def project(workspace):
    return ensure_project(workspace.pk, "default")


def turn(thread, minutes, **fields):
    metadata = {"thread_id": thread}
    start = NOW - timedelta(minutes=minutes)
    return wire_run(start=start, extra={"metadata": metadata}, **fields)


def call(parent, minutes, tokens):
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_cost": 0.25}
    start = NOW - timedelta(minutes=minutes)
    return wire_run(parent, run_type="llm", start=start, outputs={"usage_metadata": usage})


def asked(api, path, project, **body):
    response = api.post(path, {"project_id": str(project.pk)} | body)
    assert response.status_code == 200, response.content
    return response.json()


def test_a_stranger_finds_no_thread(api_of, workspace, stranger, project):
    ingest(workspace, turn("a", 5))
    outsider = api_of(stranger)
    named = {"project_id": str(project.pk)}

    assert outsider.post("/v2/threads/query", named).status_code == 404
    assert outsider.post("/v2/threads/stats", named).status_code == 404
    assert outsider.get("/v2/threads/a/traces", **named).status_code == 404
    assert outsider.get("/v2/threads/a/stats", session_id=str(project.pk)).status_code == 404


def test_threads_are_told_by_their_turns_the_newest_first(api, workspace, project):
    first, last = turn("a", 30, inputs={"q": "hello"}), turn("a", 10, error="boom")
    ingest(workspace, first, call(first, 30, 4), last, turn("b", 20), wire_run(), turn("c", 3000))

    found = asked(api, "/v2/threads/query", project)

    assert [one["thread_id"] for one in found["items"]] == ["a", "b"]
    one = found["items"][0]
    assert (one["count"], one["num_errored_turns"], one["total_tokens"]) == (2, 1, 5)
    assert (one["total_cost"], one["latency_p50"]) == (0.25, 1.0)
    assert (one["first_trace_id"], one["last_trace_id"]) == (first["id"], last["id"])
    assert (one["first_inputs"], one["last_error"]) == ("hello", "boom")
    assert found["next_cursor"] is None


def test_pages_of_threads_lead_on_while_turns_come(api, workspace, project):
    ingest(workspace, *(turn(f"t{n}", n + 1) for n in range(5)))
    seen, cursor, pages = [], None, 0

    while pages == 0 or cursor:
        page = asked(api, "/v2/threads/query", project, page_size=2, cursor=cursor)
        seen += [one["thread_id"] for one in page["items"]]
        ingest(workspace, wire_run(start=datetime.now(UTC), extra={"metadata": {"thread_id": "x"}}))
        cursor, pages = page["next_cursor"], pages + 1

    assert (pages, seen) == (3, ["t0", "t1", "t2", "t3", "t4"])


def test_threads_are_filtered_by_their_turns(api, workspace, project):
    root = turn("a", 30, name="agent")
    ingest(workspace, root, call(root, 30, 4), turn("b", 20))

    def found(**body):
        return [
            one["thread_id"] for one in asked(api, "/v2/threads/query", project, **body)["items"]
        ]

    assert found(filter='eq(name, "agent")') == ["a"]
    assert found(trace_filter='eq(name, "agent")', filter='eq(name, "x")') == []
    assert found(tree_filter='eq(run_type, "llm")') == ["a"]
    assert found(max_start_time=(NOW - timedelta(minutes=25)).isoformat()) == ["a"]


def test_the_turns_of_a_thread_are_numbered_from_its_beginning(api, workspace, project):
    turns = [turn("a/b", minutes, name=f"turn {minutes}") for minutes in (9000, 20, 10)]
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


def test_a_thread_is_told_in_numbers(api, workspace, project):
    one, two = turn("a", 30), turn("a", 20)
    ingest(workspace, one, call(one, 30, 4), two, call(two, 20, 6), turn("b", 5))
    selects = ["TURNS", "TOTAL_TOKENS", "TOTAL_COST", "LATENCY_P99", "FIRST_START_TIME"]
    query = {"session_id": str(project.pk), "selects": selects}

    told = api.get("/v2/threads/a/stats", **query).json()
    narrowed = api.get("/v2/threads/a/stats", filter=f'eq(id, "{two["id"]}")', **query).json()
    nothing = api.get("/v2/threads/none/stats", **query).json()

    start = datetime.fromisoformat(told.pop("first_start_time"))
    assert start == datetime.fromisoformat(one["start_time"])
    assert told == {
        "turns": 2,
        "total_tokens": 12,
        "total_cost": 0.5,
        "latency_p99_seconds": 1.0,
    }
    assert (narrowed["turns"], narrowed["total_tokens"]) == (1, 7)
    assert (nothing["turns"], nothing["first_start_time"]) == (0, None)


def test_threads_are_told_together(api, workspace, project):
    one = turn("a", 30)
    ingest(workspace, one, call(one, 30, 4), turn("a", 20), turn("b", 5, error="x"), wire_run())
    select = ["THREAD_COUNT", "TRACE_COUNT", "TOTAL_TOKENS", "ERROR_RATE", "LATENCY_P50"]

    told = asked(api, "/v2/threads/stats", project, select=select)

    assert told.pop("error_rate") == pytest.approx(1 / 3)
    assert told.pop("latency_p50_seconds") == pytest.approx(1.0, rel=0.01)
    assert told == {"thread_count": 2, "trace_count": 3, "total_tokens": 5}


@pytest.mark.parametrize("cursor", ["x", "AAAA", "WzEsMl0", "é" * 5, "W10"])
def test_a_cursor_of_threads_that_nobody_was_given_is_refused(api, project, cursor):
    body = {"project_id": str(project.pk), "cursor": cursor}

    response = api.post("/v2/threads/query", body)

    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


@pytest.fixture
def threads(workspace, project):
    """`a`: two turns, 11 tokens in all, the first failed; `b`: one turn of two seconds."""
    first, last = turn("a", 30, error="boom", name="first"), turn("a", 10, inputs={"q": "bye"})
    end = NOW - timedelta(minutes=20) + timedelta(seconds=2)
    other = turn("b", 20, end_time=end.isoformat(), outputs={"a": "so"})
    ingest(workspace, first, call(first, 30, 4), last, call(last, 10, 5), other, wire_run())
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
def test_threads_are_filtered_by_what_they_are_as_a_whole(
    api, project, threads, thread_filter, expected
):
    settle()

    found = asked(api, "/v2/threads/query", project, thread_filter=thread_filter)

    assert [one["thread_id"] for one in found["items"]] == expected


def test_a_thread_is_told_whole_whichever_turn_it_was_found_by(api, project, threads):
    filters = {"filter": 'eq(name, "first")', "thread_filter": "eq(count, 2)"}

    (found,) = asked(api, "/v2/threads/query", project, **filters)["items"]
    told = asked(
        api, "/v2/threads/stats", project, select=["THREAD_COUNT"], thread_filter="eq(count, 1)"
    )

    assert (found["thread_id"], found["count"], found["num_errored_turns"]) == ("a", 2, 1)
    assert told == {"thread_count": 1}


@pytest.mark.parametrize(
    ("thread_filter", "said"),
    [
        ('eq(run_type, "llm")', "there is no field `run_type`"),
        ('search("x")', "not searched"),
        ('gt(count, "many")', "column"),
    ],
)
def test_a_filter_that_is_none_of_threads_is_refused(api, project, thread_filter, said):
    body = {"project_id": str(project.pk), "thread_filter": thread_filter}

    response = api.post("/v2/threads/query", body)

    assert (response.status_code, response.json()["code"]) == (400, "filter_invalid")
    assert said in response.json()["detail"]


def test_the_fields_of_threads_stand_in_the_specification():
    page = (Path(__file__).parents[2] / "docs/filter-language.md").read_text()
    section = page.split("## Filters of threads")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z0-9_`, ]+`) \| ([a-z, ]+) \|", section, re.MULTILINE)

    told = {tuple(re.findall(r"`([a-z0-9_]+)`", names)): kind for names, kind in rows}

    of_threads = [field for field in fields.THREAD_FIELDS if field.items is None]
    assert told == {(one.name, *one.aliases): str(one.kind) for one in of_threads}
