"""Values of windows: from runs and from rollups, merged from buckets."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.alerts.metrics import Measurement, find_level, find_project_ids, measure, merge_windows
from tests.factories.alerts import build_alert_rule
from tests.factories.tracing import ProjectFactory, ingest
from tests.tracing.stats.populations import NOON, build_model_run, build_rollups, build_run


def minutes(*values: int):
    return [NOON + timedelta(minutes=value) for value in values]


def read_values(rule, *ends: int):
    measurements = measure(rule, find_project_ids(rule), minutes(*ends))
    return [measurement.value for measurement in measurements]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30),
)
def test_merged_windows_equal_the_sums_of_their_buckets(buckets, steps):
    windows, start, end = [], 0, 1
    for start_step, end_step in steps:
        end = min(len(buckets), end + end_step)
        start = min(end - 1, start + start_step)
        windows.append((start, end))

    merged = merge_windows(
        [[value] for value in buckets], windows, lambda parts: list(chain.from_iterable(parts))
    )

    assert merged == [buckets[start:end] for start, end in windows]


def test_merging_long_windows_needs_few_merges():
    calls = 0

    def merge(parts):
        nonlocal calls
        calls += 1
        return sum(parts)

    windows = [(start, start + 288) for start in range(2000)]
    assert merge_windows([1] * 2288, windows, merge) == [288] * 2000
    assert calls < 3 * 2288


@pytest.fixture
def runs(project, workspace):
    """Ten traces in the first ten minutes, of which four fail; 0 to 9 seconds long."""
    ingest(
        workspace,
        *[
            build_run(minute, seconds=minute, error="boom" if minute >= 6 else None)
            for minute in range(10)
        ],
    )


@pytest.mark.parametrize("has_rollups", [False, True])
@pytest.mark.parametrize(
    ("attribute", "aggregation", "values"),
    [
        ("run_count", "count", [10, 5, 0]),
        ("error_count", "count", [4, 4, 0]),
        ("error_count", "pct", [40, 80, None]),
        ("latency", "avg", [4.5, 7, None]),
        ("latency", "p50", [4, 7, None]),
        ("latency", "p99", [9, 9, None]),
        ("total_tokens", "sum", [0, 0, 0]),
        ("cost", "avg", [None, None, None]),
    ],
)
@pytest.mark.usefixtures("runs")
def test_windows_are_measured(project, has_rollups, attribute, aggregation, values):
    if has_rollups:
        build_rollups()
    rule = build_alert_rule(project, attribute=attribute, aggregation=aggregation)

    measured = read_values(rule, 10, 20, 30)

    assert measured == [
        None if value is None else pytest.approx(value, rel=0.011) for value in values
    ]


def test_long_window_over_rollups_equals_short_buckets(project, runs):
    build_rollups()
    rule = build_alert_rule(project, window_minutes=60)

    assert read_values(rule, 60) == [40.0]
    assert read_values(rule, 55, 60, 65) == [40.0, 40.0, 80.0]


def test_tokens_and_costs_are_summed(project, workspace):
    ingest(workspace, build_model_run(1, tokens=(10, 5), cost=0.25), build_model_run(2))
    tokens = build_alert_rule(project, attribute="total_tokens", aggregation="sum")
    cost = build_alert_rule(project, attribute="cost", aggregation="sum")

    assert read_values(tokens, 15) == [30.0]
    assert read_values(cost, 15) == [0.25]


def test_filters_choose_the_runs_and_their_share(project, workspace):
    root = build_run(1, name="root", error="boom")
    ingest(workspace, root, build_run(1, parent=root, name="call"), build_run(2, name="root"))
    traces = "eq(is_root, true)"

    assert read_values(build_alert_rule(project, filter=traces), 15) == [50.0]
    assert read_values(build_alert_rule(project), 15) == [pytest.approx(100 / 3)]
    share = build_alert_rule(
        project, attribute="run_count", aggregation="pct",
        filter='eq(name, "root")', denominator_filter=traces,
    )  # fmt: skip
    assert read_values(share, 15) == [100.0]
    of_traces = build_alert_rule(project, filter='eq(name, "call")', denominator_filter=traces)
    assert read_values(of_traces, 15) == [0.0]


def test_scores_are_averaged(api, project, workspace):
    run = build_run(1)
    ingest(workspace, run)
    for score in (0.0, 1.0, 0.5):
        api.post("/feedback", {"run_id": run["id"], "key": "ok", "score": score})
    api.post("/feedback", {"run_id": run["id"], "key": "other", "score": 9})
    rule = build_alert_rule(
        project, attribute="feedback_score", aggregation="avg", feedback_key="ok"
    )

    assert read_values(rule, 15, 20) == [0.5, None]


def test_window_with_too_few_runs_has_no_value(project, runs):
    rule = build_alert_rule(project, min_run_count=6)

    measurements = measure(rule, find_project_ids(rule), minutes(10, 20))

    assert [(item.value, item.run_count) for item in measurements] == [(40.0, 10), (None, 5)]


def test_change_is_measured_against_the_period_before(project, workspace):
    ingest(workspace, *[build_run(minute) for minute in (1, 20, 40, 62, 63, 64)])
    rule = build_alert_rule(
        project, type="change", attribute="run_count", aggregation="count",
        threshold=None, warning_threshold=None,
        threshold_window_minutes=60, threshold_multiplier=3.0,
    )  # fmt: skip

    (measurement,) = measure(rule, find_project_ids(rule), minutes(75))

    # Three runs in the hour before are 0.75 in a quarter of an hour.
    assert (measurement.value, measurement.baseline) == (3.0, 0.75)
    assert find_level(rule, measurement) == ("critical", 2.25)
    assert find_level(rule, Measurement(NOON, 3.0, 3, None)) == ("ok", None)


def test_rule_of_the_workspace_covers_all_projects_but_experiments(project, workspace):
    other = ProjectFactory(workspace=workspace)
    ProjectFactory(workspace=workspace, reference_dataset_id=project.pk)
    ProjectFactory()
    rule = build_alert_rule(project, project=None)

    assert set(find_project_ids(rule)) == {project.pk, other.pk}


@pytest.mark.parametrize(
    ("operator", "value", "level"),
    [
        ("gte", 50.0, "critical"),
        ("gte", 49.9, "warning"),
        ("gte", 19.9, "ok"),
        ("gte", None, "ok"),
        ("lte", 20.0, "warning"),
        ("lte", 21.0, "ok"),
    ],
)
def test_level_of_a_value(operator, value, level):
    critical = 50.0 if operator == "gte" else 10.0
    rule = build_alert_rule(_FakeProject(), operator=operator, threshold=critical, project=None)

    assert find_level(rule, Measurement(NOON, value, 1))[0] == level


class _FakeProject:
    """The workspace of a rule that reads no runs."""

    workspace_id = None
