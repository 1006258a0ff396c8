"""Spans come in any order and over many requests; the tree is the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.ingest.otlp import protobuf_decoder
from apps.ingest.otlp import spans as span_ids
from apps.ingest.otlp.batch_assembly import build_request
from apps.ingest.services import ingest_runs
from apps.organizations.models import Workspace
from apps.trace_store import run_store
from apps.trace_store.postgres.writing import delete_runs, span_trees
from apps.tracing.models import Project
from tests.factories.organizations import WorkspaceFactory
from tests.factories.spans import BEGIN, SECOND, TRACE, export, span, span_id
from tests.factories.tracing import ingest, wire_run

ROOT = UUID(bytes=TRACE)


def run_id(number: int) -> UUID:
    return span_ids.span_run_id(TRACE, span_id(number))


def shape(workspace: Workspace, trace_id: UUID = ROOT) -> dict[UUID, tuple[UUID | None, str]]:
    """Parent and dotted order of every run of the trace."""
    return {
        row.id: (row.parent_run_id, row.dotted_order)
        for row in run_store.trace(workspace.pk, trace_id)
    }


def nested(workspace: Workspace, trace_id: UUID = ROOT) -> list[str]:
    """Names, depth first, indented."""
    return ["  " * r.depth + r.name for r in run_store.trace(workspace.pk, trace_id)]


def test_a_root_has_the_id_of_its_trace(stored: Callable[..., Any], workspace: Workspace) -> None:
    stored(span(1, name="root"), span(2, 1, at=1, name="child"))

    assert set(shape(workspace)) == {ROOT, run_id(2)}
    assert nested(workspace) == ["root", "  child"]


def test_children_show_under_a_stand_in_until_their_root_comes(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    stored(span(3, 2, at=2, name="leaf", says={"session.id": "t-1"}))
    before = run_store.trace(workspace.pk, ROOT)
    stored(span(2, 1, at=1, name="middle"))
    stored(span(1, name="root"))

    assert [(row.id, row.parent_run_id) for row in before] == [(ROOT, None), (run_id(3), ROOT)]
    assert before[0].status == "pending"
    assert (before[0].name, before[0].thread_key) == ("leaf", "t-1")
    assert before[0].metadata == {"otel.root": "not received"}
    assert nested(workspace) == ["root", "  middle", "    leaf"]
    assert run_store.trace(workspace.pk, ROOT)[0].metadata == {"service.name": "shop"}


def test_a_stand_in_is_counted_nowhere(stored: Callable[..., Any], workspace: Workspace) -> None:
    stored(span(2, 1, at=1), project="counted")
    project = Project.objects.for_workspace(workspace).get(name="counted")
    before = run_store.project_stats(workspace.pk, [project.pk])[project.pk]
    stored(span(1), project="counted")

    after = run_store.project_stats(workspace.pk, [project.pk])[project.pk]
    assert (before.run_count, before.trace_count) == (1, 0)
    assert (after.run_count, after.trace_count) == (2, 1)


def test_a_root_that_never_comes_is_closed_when_its_trace_is_quiet(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    stored(span(2, 1, at=1, lasts=2))
    stored(span(3, 1, at=0.5, lasts=4))

    assert span_trees.close_quiet_traces(timedelta(hours=1)) == []
    (closed,) = span_trees.close_quiet_traces(timedelta(0))
    assert span_trees.close_quiet_traces(timedelta(0)) == []

    root = run_store.trace(workspace.pk, ROOT)[0]
    assert closed[:2] == (workspace.pk, ROOT)
    assert root.status == "success"
    assert root.latency == timedelta(seconds=4)


def test_a_closed_trace_still_takes_its_root(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    stored(span(2, 1, at=1, name="child"))
    span_trees.close_quiet_traces(timedelta(0))
    stored(span(1, name="root", lasts=9))

    root = run_store.trace(workspace.pk, ROOT)[0]
    assert nested(workspace) == ["root", "  child"]
    assert root.latency == timedelta(seconds=9)


def test_of_several_spans_without_a_parent_the_first_is_the_root(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    stored(span(2, at=1, name="second"), span(1, at=0, name="first"), span(3, 2, at=2, name="leaf"))
    stored(span(4, at=0.5, name="late"))

    assert nested(workspace) == ["first", "  late", "  second", "    leaf"]


def test_a_span_that_comes_again_changes_nothing(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    spans = [span(1, name="root"), span(2, 1, at=1), span(3, 2, at=2), span(4, 9, at=3)]
    for one in reversed(spans):
        stored(one)
    first = shape(workspace)
    for one in spans:
        stored(one)
        stored(*spans)

    assert shape(workspace) == first
    assert len(first) == 4


def test_an_end_that_comes_later_fills_the_gap(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    stored(span(1, end_time_unix_nano=0))
    running = run_store.trace(workspace.pk, ROOT)[0].status
    stored(span(1, lasts=3, says={"output.value": "done"}))

    row = run_store.trace(workspace.pk, ROOT)[0]
    assert running == "pending"
    assert (row.status, row.latency) == ("success", timedelta(seconds=3))
    assert row.outputs_preview == "done"


def test_a_trace_may_spread_over_projects(stored: Callable[..., Any], workspace: Workspace) -> None:
    stored(span(3, 2, at=2, name="leaf"), project="b")
    stored(span(2, 1, at=1, name="middle"), project="a")
    stored(span(1, name="root"), project="a")

    names = dict(Project.objects.for_workspace(workspace).values_list("pk", "name"))
    rows = run_store.trace(workspace.pk, ROOT)
    assert [(names[r.project_id], "  " * r.depth + r.name) for r in rows] == [
        ("a", "root"),
        ("a", "  middle"),
        ("b", "    leaf"),
    ]


def test_spans_that_are_each_others_parent_stay_below_the_root(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    stored(span(1, name="root"), span(2, 3, at=1, name="a"), span(3, 2, at=2, name="b"))
    stored(span(4, 4, at=3, name="own parent"))
    stored(span(5, 6, at=4, name="c"))
    stored(span(6, 5, at=5, name="d"))

    assert sorted(name.strip() for name in nested(workspace)) == [
        *("a", "b", "c", "d", "own parent", "root"),
    ]
    assert {row.trace_id for row in run_store.trace(workspace.pk, ROOT)} == {ROOT}


def test_a_parent_long_before_its_child_is_found(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    days = 86_400
    stored(span(2, 1, at=-9 * days, name="old"))
    stored(span(3, 2, at=0, name="new"))
    stored(span(1, at=-10 * days, name="root"))

    assert nested(workspace) == ["root", "  old", "    new"]


def test_another_workspace_has_a_trace_of_the_same_id_to_itself(
    stored: Callable[..., Any], workspace: Workspace, stranger: Workspace
) -> None:
    body = export(span(1, name="theirs")).SerializeToString()
    ingest_runs.ingest(stranger.pk, build_request(protobuf_decoder.decode(body), project=None))
    stored(span(2, 1, at=1, name="ours"))

    assert nested(workspace) == ["ours", "  ours"]
    assert nested(stranger) == ["theirs"]


@st.composite
def forests(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(span, parent) of a tree, numbered from its root."""
    size = draw(st.integers(1, 14))
    return [(1, 0)] + [(n, draw(st.integers(1, n - 1))) for n in range(2, size + 1)]


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """A tree and the requests that bring it: any order, any split, spans again."""
    tree = draw(forests())
    order = draw(st.permutations(range(len(tree))))
    again = draw(st.lists(st.sampled_from(range(len(tree))), max_size=3))
    rest = [*order, *again]
    requests = []
    while rest:
        size = draw(st.integers(1, len(rest)))
        requests.append(rest[:size])
        rest = rest[size:]
    return tree, requests


@pytest.mark.django_db
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(delivery=deliveries())
def test_any_split_and_order_gives_the_tree_of_all_at_once(
    delivery: tuple[list[tuple[int, int]], list[list[int]]],
) -> None:
    tree, requests = delivery
    # A parent may well begin after its child by its own clock.
    times = {n: (n * 7) % 5 + n / 10 for n, _ in tree}
    spans = [span(n, parent, at=times[n], name=str(n)) for n, parent in tree]
    at_once, in_pieces = WorkspaceFactory(), WorkspaceFactory()

    for target, split in ((at_once, [list(range(len(tree)))]), (in_pieces, requests)):
        for some in split:
            body = export(*(spans[n] for n in some)).SerializeToString()
            ingest_runs.ingest(
                target.pk, build_request(protobuf_decoder.decode(body), project=None)
            )

    assert shape(in_pieces) == shape(at_once)
    assert len(shape(in_pieces)) == len(tree)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM tracing_otlporphan")
        assert cursor.fetchone() == (0,)


@pytest.mark.django_db
@pytest.mark.parametrize("size", [500, pytest.param(25_000, marks=pytest.mark.slow)])
def test_a_trace_comes_leaf_first_over_many_requests(workspace: Workspace, size: int) -> None:
    numbers = random.Random(1)
    parents = {n: numbers.randrange(1, n) if n > 1 else 0 for n in range(1, size + 1)}
    for begin in range(size, 0, -100):
        some = [span(n, parents[n], at=n / 1000, name="s") for n in range(begin, begin - 100, -1)]
        body = export(*some).SerializeToString()
        ingest_runs.ingest(workspace.pk, build_request(protobuf_decoder.decode(body), project=None))

    tree = shape(workspace)
    assert len(tree) == size
    named = {n: ROOT if n == 1 else run_id(n) for n in parents} | {0: None}
    assert {n: tree[named[n]][0] for n in parents} == {n: named[p] for n, p in parents.items()}


def test_a_run_that_came_by_the_sdks_own_wire_is_not_stored_again(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    """The Python SDK's exporter gives its spans a trace and ids of their own."""
    begin = datetime.fromtimestamp(BEGIN / SECOND, UTC)
    root = wire_run(name="ask", start=begin, session_name="both")
    calls = [
        wire_run(root, name="ask_model", start=begin + timedelta(microseconds=at))
        for at in (200, 500)
    ]
    ingest(workspace, root, *calls)
    before = shape(workspace, UUID(root["trace_id"]))

    # Leaf first, a request each; from floating point, so a part of a microsecond is missing.
    for number, at in ((3, 500), (2, 200)):
        start = BEGIN + at * 1000 - 150
        stored(
            span(number, 1, name="ask_model", start_time_unix_nano=start),
            scope="langsmith",
            project="both",
        )
    stored(span(1, name="ask"), scope="langsmith", project="both")

    assert shape(workspace, UUID(root["trace_id"])) == before
    assert len(before) == 3
    assert shape(workspace) == {}


def test_a_trace_that_was_deleted_begins_anew(
    stored: Callable[..., Any], workspace: Workspace
) -> None:
    stored(span(1, name="root"), span(2, 9, at=1), project="gone")
    project = Project.objects.for_workspace(workspace).get(name="gone")

    removed = delete_runs.delete_trace_runs(workspace.pk, project.pk, [ROOT])
    stored(span(3, 1, at=2, name="late"), project="gone")

    assert len(removed) == 2
    assert nested(workspace) == ["late", "  late"]
