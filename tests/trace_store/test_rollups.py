"""Rollups give the same statistics as the runs, in any order of arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, assume, given
from hypothesis import strategies as st

from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.filters.query_analysis import extract_root_condition, extract_time_bounds
from apps.trace_store.metrics import Measure, RunMetrics
from apps.trace_store.postgres.rollups import build, query_plan
from apps.trace_store.postgres.rollups.dimensions import BY_NOTHING, DEPTH_SCOPES, RollupFilter
from apps.trace_store.postgres.rollups.intervals import Resolution
from apps.trace_store.postgres.statistics import run_metrics
from tests.examples import fuzz_settings
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import end_fields, ingest
from tests.tracing.stats.populations import (
    NOON,
    build_model_run,
    build_rollups,
    build_run,
    process_pending_runs,
    project_id_of,
)

pytestmark = pytest.mark.django_db


def aggregate(workspace, **fields: Any) -> MetricsResult:
    query = fields.pop("query", None) or RunQuery(project_ids=[project_id_of(workspace)])
    return run_store.aggregate(workspace.pk, MetricsQuery(query=query, **fields))


def plan_all_time(workspace) -> query_plan.RollupPlan:
    """Return the plan for all runs: rollup intervals, and the quarters that are read from runs."""
    edges = [NOON - timedelta(days=9), NOON + timedelta(days=9)]
    return query_plan.plan_rollups(
        workspace.pk, [project_id_of(workspace)], edges, RollupFilter(BY_NOTHING, DEPTH_SCOPES)
    )


def test_tokens_of_a_trace_count_once(workspace):
    root = build_run(tokens=(1000, 1000))  # passes the usage of its model run through
    inner = build_run(1, parent=root)
    call = build_model_run(2, parent=inner, tokens=(30, 12), cost=0.000001)
    nested = build_model_run(3, parent=call, tokens=(30, 12), cost=0.000001)
    ingest(workspace, root, inner, call, nested)

    for _ in range(2):  # first from the runs, then from rollups
        all_runs, roots = aggregate(workspace), aggregate(workspace, query=_roots(workspace))
        for metrics in (all_runs.overall, roots.overall):
            assert metrics.total(Measure.TOTAL_TOKENS) == 42
            assert metrics.total(Measure.PROMPT_TOKENS) == 30
            assert metrics.total(Measure.TOTAL_COST) == Decimal("0.000001")
        assert (all_runs.overall.runs, roots.overall.runs) == (4, 1)
        build_rollups()


def _roots(workspace) -> RunQuery:
    return RunQuery(project_ids=[project_id_of(workspace)], is_root=True)


def test_a_late_update_is_counted_before_and_after_processing(workspace):
    late = build_run(seconds=None)
    ingest(workspace, late)
    build_rollups()
    assert aggregate(workspace).overall.pending == 1

    update = end_fields(build_run(seconds=4, id=late["id"], error="broke"))
    update |= {"dotted_order": late["dotted_order"]}
    _ingest_patch(workspace, update)

    for advance in (lambda: None, process_pending_runs, build_rollups):
        advance()
        metrics = aggregate(workspace).overall
        assert (metrics.runs, metrics.pending, metrics.errors) == (1, 0, 1)
        assert metrics.most(Measure.LATENCY) == 4.0


def _ingest_patch(workspace, update: dict[str, Any]) -> None:
    import json

    from apps.ingest import decoders
    from apps.ingest.services import ingest_runs

    ingest_runs.ingest(
        workspace.pk, decoders.decode_batch(json.dumps({"patch": [update]}).encode())
    )


def test_tokens_of_a_late_model_run_count_in_the_quarter_of_its_root(workspace):
    root = build_run()
    ingest(workspace, root)
    build_rollups()

    ingest(workspace, build_model_run(40, parent=root))

    for advance in (lambda: None, process_pending_runs, build_rollups):
        advance()
        result = aggregate(workspace, query=_roots(workspace))
        assert result.overall.total(Measure.TOTAL_TOKENS) == 15


def test_a_run_that_arrives_while_a_quarter_is_built_leaves_it_dirty(workspace, monkeypatch):
    ingest(workspace, build_run())
    process_pending_runs()
    read_runs = build._from_runs

    def ingest_meanwhile(interval):
        rows = read_runs(interval)
        monkeypatch.undo()
        ingest(workspace, build_run(1))
        process_pending_runs()
        return rows

    monkeypatch.setattr(build, "_from_runs", ingest_meanwhile)
    build.rebuild_dirty_intervals(quiet=timedelta(0))

    assert aggregate(workspace).overall.runs == 2


def test_processed_time_is_read_from_rollups_and_pending_runs_from_their_quarter(workspace):
    ingest(workspace, build_run(), build_model_run(1), build_run(60 * 24))
    build_rollups()

    plan = plan_all_time(workspace)
    assert [cell.resolution for cell in plan.cells] == [Resolution.DAY, Resolution.DAY]
    assert plan.quarters == set()

    ingest(workspace, build_run(16))

    for advance in (lambda: None, process_pending_runs):
        advance()
        plan = plan_all_time(workspace)
        intervals = sorted((cell.resolution, cell.begins_at) for cell in plan.cells)
        assert intervals == [
            (Resolution.QUARTER, NOON),
            (Resolution.DAY, (NOON + timedelta(days=1)).replace(hour=0)),
        ]
        assert plan.quarters == {(project_id_of(workspace), NOON + timedelta(minutes=15))}
        assert aggregate(workspace).overall.runs == 4


def test_a_run_counts_at_its_start_time_even_outside_its_partition_time(workspace):
    misplaced_run = build_run(0) | {"start_time": (NOON + timedelta(hours=2)).isoformat()}
    ingest(workspace, misplaced_run, build_run(1))
    build_rollups()
    project_id = project_id_of(workspace)
    first = RunQuery(project_ids=[project_id], started_until=NOON + timedelta(hours=1))
    second = RunQuery(project_ids=[project_id], started_from=NOON + timedelta(hours=1))

    assert aggregate(workspace, query=first).overall.runs == 1
    assert aggregate(workspace, query=second).overall.runs == 1
    assert aggregate(workspace).overall.runs == 2


def test_too_many_names_are_counted_from_the_runs(workspace, monkeypatch):
    monkeypatch.setitem(build.MAX_NAMES, Resolution.QUARTER, 2)
    ingest(workspace, *[build_run(name=f"step {n % 3}") for n in range(6)])
    build_rollups()

    result = aggregate(workspace, group_by=GroupBy(GroupAttribute.NAME))

    assert {name: metrics.runs for name, metrics in result.by_group.items()} == {
        "step 0": 2,
        "step 1": 2,
        "step 2": 2,
    }
    assert aggregate(workspace).overall.runs == 6


def test_rollups_of_deleted_runs_count_nothing(workspace):
    from apps.trace_store.postgres.writing import delete_runs

    ingest(workspace, build_run(), build_run(1))
    build_rollups()
    delete_runs.delete_project_runs(workspace.pk, project_id_of(workspace))

    assert aggregate(workspace).overall.runs == 0
    build_rollups()
    assert aggregate(workspace).overall.runs == 0


# Random populations and queries ----------------------------------------------------------------

minutes_offsets = st.one_of(
    st.integers(0, 20), st.sampled_from([14.999, 15, 59.99, 60, 719, 720, 1500])
)
run_fields = st.fixed_dictionaries(
    {
        "minutes": minutes_offsets,
        "seconds": st.sampled_from([None, -1, 0, 0.25, 1, 30, 1000]),
        "name": st.sampled_from(["agent", "step", "model"]),
        "run_type": st.sampled_from(["chain", "llm", "tool"]),
        "tokens": st.sampled_from([None, (1, 2), (300, 40)]),
        "cost": st.sampled_from([None, 0.000003, 0.25]),
        "error": st.sampled_from([None, None, "broke"]),
    }
)
trees = st.lists(st.tuples(st.integers(-1, 5), run_fields), min_size=1, max_size=7)
texts = [
    None,
    'eq(name, "agent")',
    'and(in(run_type, ["llm", "tool"]), neq(name, "step"))',
    "neq(error, null)",
    'or(eq(status, "success"), like(name, "%e%"))',
    "not(eq(is_root, true))",
]
metrics_queries = st.builds(
    MetricsQuery,
    query=st.builds(
        RunQuery,
        is_root=st.sampled_from([None, True, False]),
        run_type=st.sampled_from([None, "llm"]),
        has_error=st.sampled_from([None, False]),
        started_from=st.sampled_from([None, NOON, NOON + timedelta(minutes=7)]),
        started_until=st.sampled_from([None, NOON + timedelta(hours=5), NOON + timedelta(days=1)]),
        where=st.sampled_from([None if text is None else filters.parse(text) for text in texts]),
    ),
    group_by=st.one_of(
        st.none(),
        st.builds(
            GroupBy,
            st.sampled_from([GroupAttribute.NAME, GroupAttribute.RUN_TYPE, GroupAttribute.STATUS]),
        ),
    ),
    edges=st.sampled_from([None, [NOON + timedelta(hours=n * 3) for n in range(9)]]),
    details=st.booleans(),
)


@fuzz_settings(5, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(trees, min_size=1, max_size=3),
    trees,
    st.lists(metrics_queries, min_size=3, max_size=5),
)
def test_rollups_give_the_same_metrics_as_the_runs(db, early, late, queries):
    assume(early)
    workspace = WorkspaceFactory()
    for branches in early:
        ingest(workspace, *_build_tree(branches))
    build_rollups()
    ingest(workspace, *_build_tree(late))
    project_id = project_id_of(workspace)

    for advance in (lambda: None, process_pending_runs, build_rollups):
        advance()
        for query in queries:
            whole = replace(query, query=replace(query.query, project_ids=[project_id]))
            from_rollups = run_store.aggregate(workspace.pk, whole)
            from_runs = run_metrics._from_runs(run_store, workspace.pk, _for_runs(whole))
            assert _comparable(from_rollups.by_bucket) == _comparable(from_runs.by_bucket)


def _for_runs(query: MetricsQuery) -> MetricsQuery:
    return replace(
        query,
        query=extract_root_condition(extract_time_bounds(query.query)),
    )


def _build_tree(branches: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    payloads: list[dict[str, Any]] = []
    for parent_index, fields in branches:
        parent = payloads[parent_index] if 0 <= parent_index < len(payloads) else None
        payloads.append(build_run(**fields, parent=parent))
    return payloads


def _comparable(by_group: Mapping[tuple[int, str | None], RunMetrics]) -> dict[Any, Any]:
    return {
        key: (
            metrics.runs,
            metrics.errors,
            metrics.pending,
            metrics.model_calls,
            metrics.last_start,
            {
                measure: (values.count, values.total, values.least, values.most)
                for measure, values in metrics.measures.items()
            },
        )
        for key, metrics in by_group.items()
    }


def test_quantiles_of_rollups_are_within_one_percent(workspace):
    ingest(workspace, *[build_run(n / 10, seconds=1 + n / 7) for n in range(100)])
    exact = aggregate(workspace).overall
    build_rollups()

    from_rollups = aggregate(workspace).overall

    for quantile, index in ((0.5, 49), (0.99, 98)):
        expected = exact.quantile(Measure.LATENCY, quantile)
        assert expected == pytest.approx(1 + index / 7, abs=1e-5)
        assert abs(from_rollups.quantile(Measure.LATENCY, quantile) - expected) <= expected * 0.01


def test_another_workspace_reads_no_rollups(workspace, other_workspace):
    ingest(workspace, build_run())
    build_rollups()
    query = RunQuery(project_ids=[project_id_of(workspace)])

    assert run_store.aggregate(other_workspace.pk, MetricsQuery(query=query)).by_bucket == {}


def test_an_unknown_project_has_no_runs(workspace):
    query = RunQuery(project_ids=[UUID(int=7)])

    assert aggregate(workspace, query=query).overall == RunMetrics()
