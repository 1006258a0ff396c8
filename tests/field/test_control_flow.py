"""Control flow that tracers report as errors: langsmith-sdk#1127."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tracers.core import _TracerCore
from langgraph.errors import GraphInterrupt, NodeCancelledError, ParentCommand
from langgraph.types import Command, Interrupt
from langsmith import run_helpers, schemas
from langsmith import utils as client_utils
from langsmith._models import construct_type
from langsmith.types.run import Run as TypedRun

from apps.trace_store import RunQuery, run_store
from apps.trace_store.run_status import (
    CANCELLATIONS,
    INTERRUPTIONS,
    Status,
    classify_error,
    status_sql,
)
from tests.factories.spans import event, export, span
from tests.factories.tracing import ingest, read_run, wire_run
from tests.tracing.stats.populations import (
    NOON,
    build_rollups,
    build_run,
    process_pending_runs,
    project_id_of,
)

pytestmark = pytest.mark.django_db

INTERRUPT = GraphInterrupt((Interrupt(value="send it?", id="0" * 32),))
TO_PARENT = ParentCommand(Command(graph=Command.PARENT, goto="writer"))
RAISED = [
    (INTERRUPT, "interrupted"),
    (TO_PARENT, "interrupted"),
    (asyncio.CancelledError(), "cancelled"),
    (KeyboardInterrupt(), "cancelled"),
    (NodeCancelledError("plan"), "error"),
    (ValueError("GraphInterrupt(()) is not JSON"), "error"),
]


def describe_raised(error: BaseException) -> dict[str, str]:
    """The error texts that the public tracers send."""
    try:
        try:
            raise KeyError("handled before")
        except KeyError:
            raise error  # noqa: B904  (the trace also has the first exception)
    except BaseException as raised:  # noqa: BLE001
        return {
            "langchain": _TracerCore._get_stacktrace(raised),
            "traceable": run_helpers._format_error_with_exceptions_to_handle(raised, None),
            "trace": client_utils._format_exc(),
        }


@pytest.mark.parametrize(("error", "status"), RAISED, ids=lambda value: type(value).__name__)
def test_error_text_of_each_tracer_tells_the_status(workspace, error, status):
    for tracer, text in describe_raised(error).items():
        run = wire_run(name=tracer, error=text)
        ingest(workspace, run)
        stored = read_run(workspace, run["id"])
        assert (tracer, stored.row.status) == (tracer, status), text[:300]


JAVASCRIPT_INTERRUPT = 'GraphInterrupt: [{"value": "send it?"}]\n    at interrupt (graph.js:1:2)'


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (JAVASCRIPT_INTERRUPT, "interrupted"),
        ("NodeInterrupt: wait", "interrupted"),
        ("AbortError: This operation was aborted", "cancelled"),
        ("asyncio.exceptions.CancelledError", "cancelled"),
        ("UserInterrupt: The run was cancelled.", "cancelled"),
        ("Cancelled orders cannot be shipped", "error"),
        ("GraphInterrupted: x", "error"),
        ("MyGraphInterrupt()", "error"),
        ("GraphRecursionError('limit')", "error"),
    ],
)  # fmt: skip
def test_error_text_of_other_clients_tells_the_status(workspace, text, status):
    run = wire_run(error=text)
    ingest(workspace, run)

    assert read_run(workspace, run["id"]).row.status == status


@pytest.mark.parametrize(
    ("kind", "message", "status"),
    [
        ("langgraph.errors.GraphInterrupt", "(Interrupt(value='x'),)", "interrupted"),
        ("GraphInterrupt", "", "interrupted"),
        ("CancelledError", "", "cancelled"),
        ("ValueError", "no", "error"),
    ],
)
def test_exception_of_a_span_tells_the_status(exporter, workspace, kind, message, status):
    attributes = {"exception.type": kind, "exception.message": message}
    by_event = span(1, name="event", error="", events=[event("exception", attributes)])
    by_attribute = span(2, name="attribute", error=message, attributes={"error.type": kind})
    exporter.send(export(by_event, by_attribute).SerializeToString(), langsmith_project="spans")

    query = RunQuery(project_ids=[project_id_of(workspace, "spans")])
    rows = [run.row for run in run_store.query(workspace.pk, query, limit=10).runs]
    assert {row.name: row.status for row in rows} == {"event": status, "attribute": status}


def build_runs() -> list[dict[str, Any]]:
    """Ten runs, two of each status, in two quarter hours."""
    errors = {
        "error": "ValueError('no')",
        "interrupted": "GraphInterrupt((Interrupt(value='?'),))",
        "cancelled": "CancelledError()",
    }
    runs = []
    for minutes in (0, 20):
        for status in Status:
            seconds = None if status is Status.PENDING else 1
            fields = {"name": str(status), "error": errors.get(status), "seconds": seconds}
            runs.append(build_run(minutes, **fields))
    return runs


@pytest.mark.parametrize("process", [process_pending_runs, build_rollups], ids=["runs", "rollups"])
def test_control_flow_is_outside_of_the_error_rate_and_filterable(api, workspace, process):
    runs = build_runs()
    ingest(workspace, *runs)
    process()
    project_id = str(project_id_of(workspace))
    session = {"session": [project_id]}

    stats = api.post("/runs/stats", {**session, "select": ["run_count", "error_rate"]}).json()
    assert stats == {"run_count": 10, "error_rate": 0.2}
    for status in Status:
        for text, expected in [
            (f'eq(status, "{status}")', {str(status)}),
            (f'neq(status, "{status}")', {*map(str, Status)} - {str(status)}),
            (f'not(eq(status, "{status}"))', {*map(str, Status)} - {str(status)}),
        ]:
            listed = api.post("/runs/query", {**session, "filter": text}).json()["runs"]
            assert {run["name"] for run in listed} == expected, text
            assert all(run["status"] == run["name"] for run in listed)
            counted = api.post("/runs/stats", {**session, "filter": text, "select": ["run_count"]})
            assert counted.json()["run_count"] == len(listed) == 2 * len(expected)
    for field_filter in ({"error": True}, {"filter": "neq(error, null)"}):
        failed = api.post("/runs/query", {**session, **field_filter}).json()["runs"]
        assert {run["name"] for run in failed} == {"error"}, field_filter
    others = api.post("/runs/query", {**session, "error": False}).json()["runs"]
    assert {run["name"] for run in others} == {*map(str, Status)} - {"error"}
    found = api.post("/runs/query", {**session, "filter": 'search(error, "GraphInterrupt")'})
    assert {run["name"] for run in found.json()["runs"]} == {"interrupted"}


def test_threads_count_only_failed_turns(api, workspace):
    runs = build_runs()
    for run in runs:
        run["extra"] = {"metadata": {"thread_id": "t"}}
    ingest(workspace, *runs)
    process_pending_runs()
    project_id = str(project_id_of(workspace))
    since = (NOON - timedelta(hours=1)).isoformat()
    body = {
        "project_id": project_id,
        "min_start_time": since,
        "thread_filter": "eq(num_errored_turns, 2)",
    }

    [group] = api.post(
        "/runs/group", {"session_id": project_id, "group_by": "conversation"}
    ).json()["groups"]
    answer = api.post("/v2/threads/query", body)
    [thread] = answer.json()["items"]

    assert (group["count"], group["num_errored_turns"]) == (10, 2)
    assert (thread["count"], thread["num_errored_turns"]) == (10, 2)
    # The last turn was cancelled.
    assert thread["last_error"] is None


def test_public_clients_read_each_status(api, workspace):
    runs = build_runs()[:5]
    ingest(workspace, *runs)
    project_id = str(project_id_of(workspace))

    listed = api.post("/runs/query", {"session": [project_id]}).json()["runs"]
    read = [schemas.Run(**run) for run in listed]
    selects = ["NAME", "STATUS", "ERROR"]
    since = (NOON - timedelta(hours=1)).isoformat()
    body = {"project_ids": [project_id], "selects": selects, "min_start_time": since}
    items = api.post("/v2/runs/query", body).json()["items"]
    typed = [construct_type(type_=TypedRun, value=item) for item in items]

    assert {run.status for run in read} == {str(status) for status in Status}
    assert {run.name: run.status for run in typed} == {s: s.upper() for s in map(str, Status)}


@given(
    prefix=st.sampled_from(["", "langgraph.errors.", "a.b_", "x ", "é."]),
    name=st.sampled_from([*INTERRUPTIONS, *CANCELLATIONS, "ValueError", "Cancelled"]),
    rest=st.sampled_from(["", "(", ":", " ", "s", "_", "é", "\n", ".x"]) | st.text(),
)
def test_sql_and_python_classify_alike(prefix, name, rest):
    preview = (prefix + name + rest).replace("\x00", "")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {status_sql('r')} FROM (SELECT %s::text AS error_preview,"
            " now() AS end_time) r",
            [preview],
        )
        assert cursor.fetchone() == (str(classify_error(preview)),), preview
