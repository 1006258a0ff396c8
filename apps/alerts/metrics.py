"""Measures the windows of a rule. Evaluation and preview share it, so that they agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from apps.alerts.models import (
    AlertAggregation,
    AlertAttribute,
    AlertLevel,
    AlertOperator,
    AlertRule,
    AlertType,
)
from apps.feedback.services import score_series
from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.aggregation import MetricsQuery
from apps.trace_store.filters.query_analysis import extract_root_condition
from apps.trace_store.metrics import Measure, RunMetrics, merge_metrics
from apps.tracing.models import Project

STEP = timedelta(minutes=5)
"""The distance of evaluations; windows begin and end at multiples of it."""

T = TypeVar("T")
_MEASURES = {
    AlertAttribute.LATENCY: Measure.LATENCY,
    AlertAttribute.TOKENS: Measure.TOTAL_TOKENS,
    AlertAttribute.COST: Measure.TOTAL_COST,
}
_QUANTILES = {AlertAggregation.P50: 0.5, AlertAggregation.P95: 0.95, AlertAggregation.P99: 0.99}
_EXTENSIVE = (AlertAggregation.COUNT, AlertAggregation.SUM)
"""Aggregations that grow with the length of the window."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The value of a window, and that of the period before it for rules of type change."""

    at: datetime
    """The end of the window, which it excludes."""
    value: float | None
    """None if there is nothing to measure."""
    run_count: int
    """The runs of the window, or the scores of a rule about feedback."""
    baseline: float | None = None
    """The value of the period before, as of a period of the window's length."""


@dataclass(frozen=True, slots=True)
class _Total:
    """The value of a set of runs and the number of them."""

    value: float | None
    count: int


def find_project_ids(rule: AlertRule) -> list[UUID]:
    """Return the projects that the rule covers and that are not deleted."""
    projects = Project.objects.for_workspace(rule.workspace_id).present()
    if rule.project_id is not None:
        projects = projects.filter(pk=rule.project_id)
    elif rule.deployment is not None:
        projects = projects.filter(name=rule.deployment.name)
    else:
        projects = projects.without_experiments()
    return list(projects.values_list("pk", flat=True))


def measure(
    rule: AlertRule, project_ids: Sequence[UUID], ends: Sequence[datetime]
) -> list[Measurement]:
    """Measure the windows that end at these times, in ascending order.

    A run counts in the window of its start. Raises `FilterError` or `QueryTooSlow`.
    """
    if not ends:
        return []
    window, baseline = rule.window, rule.baseline_window
    bounds = {end - shift for end in ends for shift in (timedelta(0), window, window + baseline)}
    edges = sorted(bounds)
    index = {edge: position for position, edge in enumerate(edges)}
    source = _read_totals(rule, project_ids, edges)
    values = source([(index[end - window], index[end]) for end in ends])
    if not baseline:
        return [
            Measurement(end, _required(rule, total), total.count)
            for end, total in zip(ends, values, strict=True)
        ]
    before = source([(index[end - window - baseline], index[end - window]) for end in ends])
    scale = window / baseline if rule.aggregation in _EXTENSIVE else 1.0
    return [
        Measurement(
            end,
            _required(rule, total),
            total.count,
            None if earlier.value is None else earlier.value * scale,
        )
        for end, total, earlier in zip(ends, values, before, strict=True)
    ]


def _required(rule: AlertRule, total: _Total) -> float | None:
    return None if total.count < rule.min_run_count else total.value


Windows = Sequence[tuple[int, int]]
"""First and end index of the buckets of each window; neither decreases."""
_TotalsReader = Callable[[Windows], list[_Total]]


def _read_totals(
    rule: AlertRule, project_ids: Sequence[UUID], edges: Sequence[datetime]
) -> _TotalsReader:
    """Read the buckets once; the returned function merges those of each window."""
    if rule.attribute == AlertAttribute.FEEDBACK:
        return _read_scores(rule, project_ids, edges)
    buckets = _read_metrics(rule, project_ids, edges, rule.filter)
    if rule.aggregation != AlertAggregation.PERCENT:

        def totals(windows: Windows) -> list[_Total]:
            return [
                _Total(_value(rule, metrics), metrics.runs)
                for metrics in merge_windows(buckets, windows, merge_metrics)
            ]

        return totals
    is_errors = rule.attribute == AlertAttribute.ERROR_COUNT
    if is_errors and not rule.denominator_filter:
        all_buckets = buckets
    else:
        all_buckets = _read_metrics(rule, project_ids, edges, rule.denominator_filter)

    def percentages(windows: Windows) -> list[_Total]:
        parts = merge_windows(buckets, windows, merge_metrics)
        wholes = merge_windows(all_buckets, windows, merge_metrics)
        return [
            _Total(
                100 * (part.errors if is_errors else part.runs) / whole.runs
                if whole.runs
                else None,
                whole.runs,
            )
            for part, whole in zip(parts, wholes, strict=True)
        ]

    return percentages


def _read_metrics(
    rule: AlertRule, project_ids: Sequence[UUID], edges: Sequence[datetime], filter_text: str
) -> list[RunMetrics]:
    """Return the metrics of each bucket."""
    measure_needed = _MEASURES.get(AlertAttribute(rule.attribute))
    result = run_store.aggregate(
        rule.workspace_id,
        MetricsQuery(
            query=_build_query(project_ids, filter_text),
            edges=edges,
            measures=() if measure_needed is None else (measure_needed,),
            quantiles=None,  # buckets are merged to windows
        ),
    )
    return [result.by_bucket.get((index, None)) or RunMetrics() for index in range(len(edges) - 1)]


def _build_query(project_ids: Sequence[UUID], filter_text: str) -> RunQuery:
    where = filters.parse(filter_text) if filter_text else None
    return extract_root_condition(RunQuery(project_ids=list(project_ids), where=where))


def _value(rule: AlertRule, metrics: RunMetrics) -> float | None:
    aggregation = AlertAggregation(rule.aggregation)
    if aggregation == AlertAggregation.COUNT:
        is_errors = rule.attribute == AlertAttribute.ERROR_COUNT
        return float(metrics.errors if is_errors else metrics.runs)
    measure_needed = _MEASURES[AlertAttribute(rule.attribute)]
    value: Any
    if aggregation == AlertAggregation.SUM:
        value = metrics.total(measure_needed)
    elif aggregation == AlertAggregation.AVERAGE:
        value = metrics.average(measure_needed)
    else:
        value = metrics.quantile(measure_needed, _QUANTILES[aggregation])
    return None if value is None else float(value)


def _read_scores(
    rule: AlertRule, project_ids: Sequence[UUID], edges: Sequence[datetime]
) -> _TotalsReader:
    stats = score_series.by_bucket(
        rule.workspace_id, _build_query(project_ids, rule.filter), edges, rule.feedback_key
    )
    buckets: list[tuple[int, float]] = []
    for index in range(len(edges) - 1):
        bucket = stats.get((index, rule.feedback_key)) or {}
        buckets.append((bucket.get("n") or 0, float(bucket.get("sum") or 0)))

    def totals(windows: Windows) -> list[_Total]:
        return [
            _Total(total / count if count else None, count)
            for count, total in merge_windows(buckets, windows, _add_scores)
        ]

    return totals


def _add_scores(parts: Iterable[tuple[int, float]]) -> tuple[int, float]:
    counts, totals = zip(*parts, strict=True)
    return sum(counts), sum(totals)


def merge_windows(
    buckets: Sequence[T], windows: Windows, merge: Callable[[Iterable[T]], T]
) -> list[T]:
    """Merge the buckets of each window, which has at least one.

    Two stacks make the number of merges proportional to that of buckets, however long the windows
    are: `older` has the merges of each older bucket with those up to `middle`, `newer` the merge of
    the buckets from `middle` on.
    """
    results: list[T] = []
    older: list[T] = []
    middle = newer_end = 0
    newer: T | None = None
    for start, end in windows:
        if start >= middle:
            older = []
            for index in range(end - 1, start - 1, -1):
                older.append(merge([buckets[index], older[-1]]) if older else buckets[index])
            middle, newer_end, newer = end, end, None
        for index in range(newer_end, end):
            newer = buckets[index] if newer is None else merge([newer, buckets[index]])
        newer_end = max(newer_end, end)
        rest = older[middle - 1 - start]
        results.append(rest if newer is None else merge([rest, newer]))
    return results


def find_level(rule: AlertRule, measurement: Measurement) -> tuple[AlertLevel, float | None]:
    """Return the level of a measurement and the threshold that it reached, else the next one.

    Without a value or a period to compare with, the level is OK.
    """
    thresholds = _thresholds(rule, measurement)
    nearest: float | None = None
    for level, threshold in thresholds:
        if threshold is None:
            continue
        nearest = threshold
        if measurement.value is not None and _reaches(rule, measurement.value, threshold):
            return level, threshold
    return AlertLevel.OK, nearest


def _thresholds(
    rule: AlertRule, measurement: Measurement
) -> tuple[tuple[AlertLevel, float | None], ...]:
    """The thresholds, the worst level first."""
    if rule.type == AlertType.THRESHOLD:
        return (
            (AlertLevel.CRITICAL, rule.threshold),
            (AlertLevel.WARNING, rule.warning_threshold),
        )
    baseline = measurement.baseline

    def scaled(multiplier: float | None) -> float | None:
        # Nothing is a multiple of zero: a period without a value is no baseline.
        return None if multiplier is None or not baseline else baseline * multiplier

    return (
        (AlertLevel.CRITICAL, scaled(rule.threshold_multiplier)),
        (AlertLevel.WARNING, scaled(rule.warning_multiplier)),
    )


def _reaches(rule: AlertRule, value: float, threshold: float) -> bool:
    return value >= threshold if rule.operator == AlertOperator.ABOVE else value <= threshold
