"""Spans in any order and over many requests give the same tree."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from apps.ingest.otlp import protobuf_decoder
from apps.ingest.otlp import spans as span_ids
from apps.ingest.otlp.batch_assembly import build_request
from apps.ingest.services import ingest_runs, maintenance
from apps.organizations.models import Workspace
from apps.trace_store import run_store
from apps.tracing.models import Project
from tests.examples import fuzz_settings
from tests.factories.organizations import WorkspaceFactory
from tests.factories.spans import BEGIN, SECOND, TRACE, export, span, span_id
from tests.factories.tracing import ingest, wire_run

ROOT = UUID(bytes=TRACE)


def run_id(number: int) -> UUID:
    return span_ids.span_run_id(TRACE, span_id(number))


def tree_positions(
    workspace: Workspace, trace_id: UUID = ROOT
) -> dict[UUID, tuple[UUID | None, str]]:
    """Return parent and dotted order of every run of the trace."""
    return {
        row.id: (row.parent_run_id, row.dotted_order)
        for row in run_store.fetch_trace(workspace.pk, trace_id)
    }


def indented_names(workspace: Workspace, trace_id: UUID = ROOT) -> list[str]:
    """Return the names of the runs, depth first and indented."""
    return ["  " * r.depth + r.name for r in run_store.fetch_trace(workspace.pk, trace_id)]


def test_a_root_has_the_id_of_its_trace(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    store_spans(span(1, name="root"), span(2, 1, at=1, name="child"))

    assert set(tree_positions(workspace)) == {ROOT, run_id(2)}
    assert indented_names(workspace) == ["root", "  child"]


def test_children_are_under_a_placeholder_until_their_root_arrives(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    store_spans(span(3, 2, at=2, name="leaf", attributes={"session.id": "t-1"}))
    before = run_store.fetch_trace(workspace.pk, ROOT)
    store_spans(span(2, 1, at=1, name="middle"))
    store_spans(span(1, name="root"))

    assert [(row.id, row.parent_run_id) for row in before] == [(ROOT, None), (run_id(3), ROOT)]
    assert before[0].status == "pending"
    assert (before[0].name, before[0].thread_key) == ("leaf", "t-1")
    assert before[0].metadata == {"otel.root": "not received"}
    assert indented_names(workspace) == ["root", "  middle", "    leaf"]
    assert run_store.fetch_trace(workspace.pk, ROOT)[0].metadata == {"service.name": "shop"}


def test_a_placeholder_root_is_not_counted(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    store_spans(span(2, 1, at=1), project="counted")
    project = Project.objects.for_workspace(workspace).get(name="counted")
    before = run_store.project_stats(workspace.pk, [project.pk])[project.pk]
    store_spans(span(1), project="counted")

    after = run_store.project_stats(workspace.pk, [project.pk])[project.pk]
    assert (before.run_count, before.trace_count) == (1, 0)
    assert (after.run_count, after.trace_count) == (2, 1)


def test_a_missing_root_is_closed_when_its_trace_is_quiet(
    store_spans: Callable[..., Any], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_spans(span(2, 1, at=1, seconds=2))
    store_spans(span(3, 1, at=0.5, seconds=4))

    assert maintenance.close_quiet_traces() == 0
    monkeypatch.setattr(maintenance, "QUIET_AFTER", timedelta(0))
    assert maintenance.close_quiet_traces() == 1
    assert maintenance.close_quiet_traces() == 0

    root = run_store.fetch_trace(workspace.pk, ROOT)[0]
    assert root.status == "success"
    assert root.latency == timedelta(seconds=4)


def test_a_closed_trace_accepts_its_late_root(
    store_spans: Callable[..., Any], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_spans(span(2, 1, at=1, name="child"))
    monkeypatch.setattr(maintenance, "QUIET_AFTER", timedelta(0))
    assert maintenance.close_quiet_traces() == 1
    store_spans(span(1, name="root", seconds=9))

    root = run_store.fetch_trace(workspace.pk, ROOT)[0]
    assert indented_names(workspace) == ["root", "  child"]
    assert root.latency == timedelta(seconds=9)


def test_of_several_spans_without_a_parent_the_first_is_the_root(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    store_spans(
        span(2, at=1, name="second"), span(1, at=0, name="first"), span(3, 2, at=2, name="leaf")
    )
    store_spans(span(4, at=0.5, name="late"))

    assert indented_names(workspace) == ["first", "  late", "  second", "    leaf"]


def test_a_repeated_span_changes_nothing(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    spans = [span(1, name="root"), span(2, 1, at=1), span(3, 2, at=2), span(4, 9, at=3)]
    for single_span in reversed(spans):
        store_spans(single_span)
    first = tree_positions(workspace)
    for single_span in spans:
        store_spans(single_span)
        store_spans(*spans)

    assert tree_positions(workspace) == first
    assert len(first) == 4


def test_a_later_end_completes_a_running_span(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    store_spans(span(1, end_time_unix_nano=0))
    running = run_store.fetch_trace(workspace.pk, ROOT)[0].status
    store_spans(span(1, seconds=3, attributes={"output.value": "done"}))

    row = run_store.fetch_trace(workspace.pk, ROOT)[0]
    assert running == "pending"
    assert (row.status, row.latency) == ("success", timedelta(seconds=3))
    assert row.outputs_preview == "done"


def test_a_trace_may_belong_to_several_projects(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    store_spans(span(3, 2, at=2, name="leaf"), project="b")
    store_spans(span(2, 1, at=1, name="middle"), project="a")
    store_spans(span(1, name="root"), project="a")

    names = dict(Project.objects.for_workspace(workspace).values_list("pk", "name"))
    rows = run_store.fetch_trace(workspace.pk, ROOT)
    assert [(names[r.project_id], "  " * r.depth + r.name) for r in rows] == [
        ("a", "root"),
        ("a", "  middle"),
        ("b", "    leaf"),
    ]


def test_spans_with_cyclic_parents_are_below_the_root(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    store_spans(span(1, name="root"), span(2, 3, at=1, name="a"), span(3, 2, at=2, name="b"))
    store_spans(span(4, 4, at=3, name="own parent"))
    store_spans(span(5, 6, at=4, name="c"))
    store_spans(span(6, 5, at=5, name="d"))

    assert sorted(name.strip() for name in indented_names(workspace)) == [
        *("a", "b", "c", "d", "own parent", "root"),
    ]
    assert {row.trace_id for row in run_store.fetch_trace(workspace.pk, ROOT)} == {ROOT}


def test_a_parent_long_before_its_child_is_found(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    days = 86_400
    store_spans(span(2, 1, at=-9 * days, name="old"))
    store_spans(span(3, 2, at=0, name="new"))
    store_spans(span(1, at=-10 * days, name="root"))

    assert indented_names(workspace) == ["root", "  old", "    new"]


def test_traces_with_the_same_id_in_two_workspaces_are_separate(
    store_spans: Callable[..., Any], workspace: Workspace, other_workspace: Workspace
) -> None:
    body = export(span(1, name="theirs")).SerializeToString()
    ingest_runs.ingest(
        other_workspace.pk, build_request(protobuf_decoder.decode(body), project=None)
    )
    store_spans(span(2, 1, at=1, name="ours"))

    assert indented_names(workspace) == ["ours", "  ours"]
    assert indented_names(other_workspace) == ["theirs"]


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Draw a tree as pairs of span and parent, numbered from its root."""
    size = draw(st.integers(1, 14))
    return [(1, 0)] + [(n, draw(st.integers(1, n - 1))) for n in range(2, size + 1)]


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Draw a tree and the requests that deliver it in any order and split, with repeated spans."""
    tree = draw(trees())
    order = draw(st.permutations(range(len(tree))))
    repeated = draw(st.lists(st.sampled_from(range(len(tree))), max_size=3))
    remaining = [*order, *repeated]
    requests = []
    while remaining:
        size = draw(st.integers(1, len(remaining)))
        requests.append(remaining[:size])
        remaining = remaining[size:]
    return tree, requests


@pytest.mark.exhaustive
@pytest.mark.django_db
@fuzz_settings(25)
@given(delivery=deliveries())
def test_any_split_and_order_gives_the_tree_of_a_single_request(
    delivery: tuple[list[tuple[int, int]], list[list[int]]],
) -> None:
    tree, requests = delivery
    # By its own clock a parent may start after its child.
    times = {n: (n * 7) % 5 + n / 10 for n, _ in tree}
    spans = [span(n, parent, at=times[n], name=str(n)) for n, parent in tree]
    single_request, many_requests = WorkspaceFactory(), WorkspaceFactory()

    for target, split in ((single_request, [list(range(len(tree)))]), (many_requests, requests)):
        for numbers in split:
            body = export(*(spans[n] for n in numbers)).SerializeToString()
            ingest_runs.ingest(
                target.pk, build_request(protobuf_decoder.decode(body), project=None)
            )

    assert tree_positions(many_requests) == tree_positions(single_request)
    assert len(tree_positions(many_requests)) == len(tree)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ingest_otlpwaitingspan")
        assert cursor.fetchone() == (0,)


@pytest.mark.django_db
@pytest.mark.parametrize("size", [500, pytest.param(25_000, marks=pytest.mark.slow)])
def test_a_trace_sent_leaf_first_over_many_requests_is_one_tree(
    workspace: Workspace, size: int
) -> None:
    numbers = random.Random(1)
    parents = {n: numbers.randrange(1, n) if n > 1 else 0 for n in range(1, size + 1)}
    for last in range(size, 0, -100):
        batch = [span(n, parents[n], at=n / 1000, name="s") for n in range(last, last - 100, -1)]
        body = export(*batch).SerializeToString()
        ingest_runs.ingest(workspace.pk, build_request(protobuf_decoder.decode(body), project=None))

    tree = tree_positions(workspace)
    assert len(tree) == size
    run_ids = {n: ROOT if n == 1 else run_id(n) for n in parents} | {0: None}
    assert {n: tree[run_ids[n]][0] for n in parents} == {n: run_ids[p] for n, p in parents.items()}


def test_a_run_sent_by_the_sdk_and_by_opentelemetry_is_stored_once(
    store_spans: Callable[..., Any], workspace: Workspace
) -> None:
    """The OpenTelemetry exporter of the Python SDK uses other trace and span ids than its runs."""
    started_at = datetime.fromtimestamp(BEGIN / SECOND, UTC)
    root = wire_run(name="ask", start=started_at, session_name="both")
    calls = [
        wire_run(root, name="ask_model", start=started_at + timedelta(microseconds=microseconds))
        for microseconds in (200, 500)
    ]
    ingest(workspace, root, *calls)
    before = tree_positions(workspace, UUID(root["trace_id"]))

    # Leaf first in single requests; the times lose a part of a microsecond by floating point.
    for number, microseconds in ((3, 500), (2, 200)):
        start = BEGIN + microseconds * 1000 - 150
        store_spans(
            span(number, 1, name="ask_model", start_time_unix_nano=start),
            scope="langsmith",
            project="both",
        )
    store_spans(span(1, name="ask"), scope="langsmith", project="both")

    assert tree_positions(workspace, UUID(root["trace_id"])) == before
    assert len(before) == 3
    assert tree_positions(workspace) == {}


def test_a_deleted_trace_starts_anew(store_spans: Callable[..., Any], workspace: Workspace) -> None:
    store_spans(span(1, name="root"), span(2, 9, at=1), project="gone")
    project = Project.objects.for_workspace(workspace).get(name="gone")

    removed = run_store.delete_traces(workspace.pk, project.pk, [ROOT])
    store_spans(span(3, 1, at=2, name="late"), project="gone")

    assert removed == 2
    assert indented_names(workspace) == ["late", "  late"]
