"""Rollups answer as the runs would, whatever came when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.filters.query_analysis import extract_root_condition, extract_time_bounds
from apps.trace_store.metrics import Measure, RunMetrics
from apps.trace_store.postgres.rollups import build, query_plan
from apps.trace_store.postgres.rollups.dimensions import BY_NOTHING, DEPTH_SCOPES, RollupFilter
from apps.trace_store.postgres.rollups.intervals import Resolution
from apps.trace_store.postgres.statistics import run_metrics
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ended, ingest
from tests.tracing.stats.populations import NOON, model_call, project_of, roll_up, run, settle

pytestmark = pytest.mark.django_db


def ask(workspace, **fields: Any) -> MetricsResult:
    query = fields.pop("query", None) or RunQuery(project_ids=[project_of(workspace)])
    return run_store.aggregate(workspace.pk, MetricsQuery(query=query, **fields))


def planned(workspace) -> query_plan.RollupPlan:
    """How the time of all runs is read: which spans, and which quarters of runs."""
    edges = [NOON - timedelta(days=9), NOON + timedelta(days=9)]
    return query_plan.plan_rollups(
        workspace.pk, [project_of(workspace)], edges, RollupFilter(BY_NOTHING, DEPTH_SCOPES)
    )


def test_tokens_of_a_trace_count_once(workspace):
    root = run(tokens=(1000, 1000))  # passes the answer of its model through
    inner = run(1, below=root)
    call = model_call(2, below=inner, tokens=(30, 12), cost=0.000001)
    nested = model_call(3, below=call, tokens=(30, 12), cost=0.000001)
    ingest(workspace, root, inner, call, nested)

    for _ in range(2):  # from the runs, and from rollups
        everything, roots = ask(workspace), ask(workspace, query=_roots(workspace))
        for figures in (everything.whole, roots.whole):
            assert figures.total(Measure.TOTAL_TOKENS) == 42
            assert figures.total(Measure.PROMPT_TOKENS) == 30
            assert figures.total(Measure.TOTAL_COST) == Decimal("0.000001")
        assert (everything.whole.runs, roots.whole.runs) == (4, 1)
        roll_up()


def _roots(workspace) -> RunQuery:
    return RunQuery(project_ids=[project_of(workspace)], is_root=True)


def test_a_late_update_is_counted_at_once_and_after(workspace):
    late = run(seconds=None)
    ingest(workspace, late)
    roll_up()
    assert ask(workspace).whole.pending == 1

    update = ended(run(seconds=4, id=late["id"], error="broke"))
    update |= {"dotted_order": late["dotted_order"]}
    _patch(workspace, update)

    for step in (lambda: None, settle, roll_up):
        step()
        figures = ask(workspace).whole
        assert (figures.runs, figures.pending, figures.errors) == (1, 0, 1)
        assert figures.most(Measure.LATENCY) == 4.0


def _patch(workspace, update: dict[str, Any]) -> None:
    import json

    from apps.ingest import decoders
    from apps.ingest.services import ingest_runs

    ingest_runs.ingest(
        workspace.pk, decoders.decode_batch(json.dumps({"patch": [update]}).encode())
    )


def test_a_call_that_comes_later_counts_in_the_quarter_of_its_root(workspace):
    root = run()
    ingest(workspace, root)
    roll_up()

    ingest(workspace, model_call(40, below=root))

    for step in (lambda: None, settle, roll_up):
        step()
        found = ask(workspace, query=_roots(workspace))
        assert found.whole.total(Measure.TOTAL_TOKENS) == 15


def test_a_run_that_comes_while_a_quarter_is_made_leaves_it_dirty(workspace, monkeypatch):
    ingest(workspace, run())
    settle()
    made = build._from_runs

    def meanwhile(interval):
        rows = made(interval)
        monkeypatch.undo()
        ingest(workspace, run(1))
        settle()
        return rows

    monkeypatch.setattr(build, "_from_runs", meanwhile)
    build.rebuild_dirty_intervals(quiet=timedelta(0))

    assert ask(workspace).whole.runs == 2


def test_settled_time_is_read_from_rollups_and_what_is_unsettled_from_its_quarter(workspace):
    ingest(workspace, run(), model_call(1), run(60 * 24))
    roll_up()

    query_plan = planned(workspace)
    assert [cell.resolution for cell in query_plan.cells] == [Resolution.DAY, Resolution.DAY]
    assert query_plan.quarters == set()

    ingest(workspace, run(16))

    for step in (lambda: None, settle):
        step()
        query_plan = planned(workspace)
        spans = sorted((cell.resolution, cell.begins_at) for cell in query_plan.cells)
        assert spans == [
            (Resolution.QUARTER, NOON),
            (Resolution.DAY, (NOON + timedelta(days=1)).replace(hour=0)),
        ]
        assert query_plan.quarters == {(project_of(workspace), NOON + timedelta(minutes=15))}
        assert ask(workspace).whole.runs == 4


def test_a_run_that_says_it_started_at_another_time_is_found_by_that_time(workspace):
    astray = run(0) | {"start_time": (NOON + timedelta(hours=2)).isoformat()}
    ingest(workspace, astray, run(1))
    roll_up()
    project_id = project_of(workspace)
    first = RunQuery(project_ids=[project_id], started_until=NOON + timedelta(hours=1))
    second = RunQuery(project_ids=[project_id], started_from=NOON + timedelta(hours=1))

    assert ask(workspace, query=first).whole.runs == 1
    assert ask(workspace, query=second).whole.runs == 1
    assert ask(workspace).whole.runs == 2


def test_too_many_names_are_counted_from_the_runs(workspace, monkeypatch):
    monkeypatch.setitem(build.MAX_NAMES, Resolution.QUARTER, 2)
    ingest(workspace, *[run(name=f"step {n % 3}") for n in range(6)])
    roll_up()

    found = ask(workspace, group_by=GroupBy(GroupAttribute.NAME))

    assert {name: one.runs for name, one in found.by_group.items()} == {
        "step 0": 2,
        "step 1": 2,
        "step 2": 2,
    }
    assert ask(workspace).whole.runs == 6


def test_a_spans_rows_go_with_its_runs(workspace):
    from apps.trace_store.postgres.writing import delete_runs

    ingest(workspace, run(), run(1))
    roll_up()
    delete_runs.delete_project_runs(workspace.pk, project_of(workspace))

    assert ask(workspace).whole.runs == 0
    roll_up()
    assert ask(workspace).whole.runs == 0


# Populations and questions of all kinds -------------------------------------------------------

moments = st.one_of(st.integers(0, 20), st.sampled_from([14.999, 15, 59.99, 60, 719, 720, 1500]))
one_run = st.fixed_dictionaries(
    {
        "minutes": moments,
        "seconds": st.sampled_from([None, -1, 0, 0.25, 1, 30, 1000]),
        "name": st.sampled_from(["agent", "step", "model"]),
        "run_type": st.sampled_from(["chain", "llm", "tool"]),
        "tokens": st.sampled_from([None, (1, 2), (300, 40)]),
        "cost": st.sampled_from([None, 0.000003, 0.25]),
        "error": st.sampled_from([None, None, "broke"]),
    }
)
trees = st.lists(st.tuples(st.integers(-1, 5), one_run), min_size=1, max_size=7)
texts = [
    None,
    'eq(name, "agent")',
    'and(in(run_type, ["llm", "tool"]), neq(name, "step"))',
    "neq(error, null)",
    'or(eq(status, "success"), like(name, "%e%"))',
    "not(eq(is_root, true))",
]
questions = st.builds(
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


@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(trees, min_size=1, max_size=3), trees, st.lists(questions, min_size=3, max_size=5))
def test_rollups_say_what_the_runs_say(db, early, late, asked):
    assume(early)
    workspace = WorkspaceFactory()
    for tree in early:
        ingest(workspace, *_tree(tree))
    roll_up()
    ingest(workspace, *_tree(late))
    project_id = project_of(workspace)

    for step in (lambda: None, settle, roll_up):
        step()
        for question in asked:
            whole = replace(question, query=replace(question.query, project_ids=[project_id]))
            told = run_store.aggregate(workspace.pk, whole)
            true = run_metrics._from_runs(run_store, workspace.pk, _for_runs(whole))
            assert _shown(told.by_bucket) == _shown(true.by_bucket)


def _for_runs(question: MetricsQuery) -> MetricsQuery:
    return replace(
        question,
        query=extract_root_condition(extract_time_bounds(question.query)),
    )


def _tree(chosen: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for above, fields in chosen:
        parent = made[above] if 0 <= above < len(made) else None
        made.append(run(**fields, below=parent))
    return made


def _shown(found: Mapping[tuple[int, str | None], RunMetrics]) -> dict[Any, Any]:
    return {
        key: (
            one.runs,
            one.errors,
            one.pending,
            one.model_calls,
            one.last_start,
            {
                measure: (values.count, values.total, values.least, values.most)
                for measure, values in one.measures.items()
            },
        )
        for key, one in found.items()
    }


def test_quantiles_of_rollups_are_within_a_hundredth(workspace):
    ingest(workspace, *[run(n / 10, seconds=1 + n / 7) for n in range(100)])
    exact = ask(workspace).whole
    roll_up()

    rolled = ask(workspace).whole

    for share, place in ((0.5, 49), (0.99, 98)):
        true = exact.quantile(Measure.LATENCY, share)
        assert true == pytest.approx(1 + place / 7, abs=1e-5)
        assert abs(rolled.quantile(Measure.LATENCY, share) - true) <= true * 0.01


def test_another_workspace_sees_nothing(workspace, stranger):
    ingest(workspace, run())
    roll_up()
    query = RunQuery(project_ids=[project_of(workspace)])

    assert run_store.aggregate(stranger.pk, MetricsQuery(query=query)).by_bucket == {}


def test_no_project_is_no_runs(workspace):
    query = RunQuery(project_ids=[UUID(int=7)])

    assert ask(workspace, query=query).whole == RunMetrics()
