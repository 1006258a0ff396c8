"""Compute the data points of charts. Series over the same runs share one query."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from apps.core import errors
from apps.feedback.services import score_series
from apps.monitoring import buckets
from apps.monitoring.buckets import Stride
from apps.monitoring.models import ChartType
from apps.monitoring.series import (
    ChartScope,
    FeedbackMetricSpec,
    MetricSpec,
    RatioSpec,
    RunMetricSpec,
    Series,
    parse_series,
)
from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.filters.query_analysis import extract_root_condition
from apps.trace_store.metrics import Measure, RunMetrics
from apps.tracing.models import Project

MAX_SERIES = 50
MAX_POINTS = 20_000
_DEFAULT_LENGTH = timedelta(days=7)
_TICK = timedelta(microseconds=1)
"""Lists and statistics include the end of their range, but a bucket excludes its upper edge."""
GroupKey = tuple[int, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The period that charts cover, and the length of its buckets."""

    start: datetime
    end: datetime
    stride: Stride
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    group_by: GroupBy | None = None
    with_data: bool = True
    shift: timedelta = timedelta(0)
    """How much earlier than `start` to `end` the buckets are."""

    @classmethod
    def with_defaults(
        cls,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        stride: Stride | None = None,
        **options: Any,
    ) -> TimeRange:
        """Return a time range that defaults to the last week and to a stride that fits it."""
        end = end or datetime.now(UTC)
        start = start or end - _DEFAULT_LENGTH
        return cls(
            start=start, end=end, stride=stride or buckets.choose_stride(end - start), **options
        )

    @property
    def previous(self) -> TimeRange:
        """The time range before this one, with as many buckets; their edges are strides apart."""
        stride = self.stride.approximate_length
        return replace(self, shift=self.shift + -(-(self.end - self.start) // stride) * stride)

    def edges(self, chart_type: str) -> list[datetime]:
        if ChartType(chart_type).is_over_time:
            edges = buckets.bucket_edges(self.start, self.end, self.stride, self.zone)
            edges[-1] = max(edges[-1], self.end + _TICK)
        elif self.end <= self.start:
            raise errors.Invalid("end_time: must be later than start_time.")
        else:
            edges = [self.start, self.end + _TICK]
        return [edge - self.shift for edge in edges] if self.shift else edges

    def bound(self, query: RunQuery) -> RunQuery:
        """Limit the query to the time range: its first and last bucket may extend beyond it."""
        return replace(
            query, started_from=self.start - self.shift, started_until=self.end - self.shift
        )


@dataclass(slots=True)
class SeriesData:
    """The values of a series: one per bucket for each group, or for the group None."""

    id: str
    values_by_group: Mapping[str | None, Sequence[Any]]
    group_count: int = 0
    """The number of groups in the time range; `values_by_group` has the largest, largest first."""
    counted_since: datetime | None = None
    """Set if there were too many runs: only those since this time are counted."""


@dataclass
class ChartComputer:
    """Computes the charts of one request in one workspace."""

    workspace_id: UUID
    time_range: TimeRange
    _results: dict[Any, MetricsResult] = field(default_factory=dict)
    _measures: dict[Any, set[Measure]] = field(default_factory=dict)
    """The measures that the charts need, by `_selection_key`."""
    _quantiles: dict[Any, set[float]] = field(default_factory=dict)

    @cached_property
    def _projects(self) -> dict[UUID, UUID | None]:
        """The projects of the workspace, with the dataset of each experiment."""
        projects = Project.objects.for_workspace(self.workspace_id).present()
        return dict(projects.values_list("pk", "reference_dataset_id"))

    def _scope(self, common: Mapping[str, Any]) -> ChartScope:
        return ChartScope(
            list(self._projects),
            common,
            {
                project_id: dataset_id
                for project_id, dataset_id in self._projects.items()
                if dataset_id is not None
            },
            self.workspace_id,
        )

    def prepare(self, charts: Sequence[Mapping[str, Any]]) -> None:
        """Collect the measures of the charts, so that `compute_points` shares queries."""
        for chart in charts:
            scope = self._scope(chart["common_filters"])
            self._add_measures(self._parse(chart["series"], scope))

    def _parse(self, payload: Sequence[Mapping[str, Any]], scope: ChartScope) -> list[Series]:
        return [parse_series(series, scope, self.time_range.group_by) for series in payload]

    def _add_measures(self, all_series: Sequence[Series]) -> None:
        for metric in _run_metrics(all_series):
            key = _selection_key(metric)
            self._measures.setdefault(key, set()).update(metric.measures)
            self._quantiles.setdefault(key, set()).update(metric.quantiles)

    def compute_points(
        self, chart_type: str, payload: Sequence[Mapping[str, Any]], common: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the data points of a chart. Raises `Invalid` for an invalid series."""
        all_data = self.compute_series(chart_type, payload, common)
        edges = self.time_range.edges(chart_type) if all_data else []
        return [
            {
                "series_id": data.id,
                "timestamp": edges[bucket],
                "value": value,
                "group": group,
            }
            for data in all_data
            for group in sorted(data.values_by_group, key=str)
            for bucket, value in enumerate(data.values_by_group[group])
        ]

    def compute_series(
        self,
        chart_type: str,
        payload: Sequence[Mapping[str, Any]],
        common: Mapping[str, Any],
        groups: Sequence[Sequence[str | None]] | None = None,
    ) -> list[SeriesData]:
        """Return the values of each series; `groups` selects the groups of each series.

        Raises `Invalid` for an invalid series.
        """
        all_series = self._parse(payload, self._scope(common))
        if chart_type == ChartType.TEXT or not self.time_range.with_data or not all_series:
            return []
        edges = self.time_range.edges(chart_type)
        if len(all_series) > MAX_SERIES or len(all_series) * len(edges) > MAX_POINTS:
            raise errors.Invalid(
                f"series: a chart has at most {MAX_SERIES} series and {MAX_POINTS} points."
            )
        self._add_measures(all_series)
        return [
            self._series_data(series, edges, groups[index] if groups is not None else None)
            for index, series in enumerate(all_series)
        ]

    def _series_data(
        self, series: Series, edges: list[datetime], groups: Sequence[str | None] | None
    ) -> SeriesData:
        group_by = _without_limit(series.group_by) if groups is not None else series.group_by
        values = self._values(series.metric, group_by, edges)
        empty_value = 0 if _is_count(series.metric) else None
        result = self._first_result(series.metric, group_by, edges)
        runs = {group: metrics.runs for group, metrics in result.by_group.items()}
        if groups is None:
            present = {group for _, group in values} or {None}
            groups = sorted(present, key=lambda group: (-runs.get(group, 0), str(group)))
        return SeriesData(
            series.id,
            {
                group: [
                    values.get((bucket, group), empty_value) for bucket in range(len(edges) - 1)
                ]
                for group in groups
            },
            result.group_count,
            result.counted_since,
        )

    def _first_result(
        self, metric: MetricSpec, group_by: GroupBy | None, edges: list[datetime]
    ) -> MetricsResult:
        """Return the result that determines the groups of the series."""
        while isinstance(metric, RatioSpec):
            metric = metric.denominator
        if isinstance(metric, RunMetricSpec):
            return self._aggregate(metric, group_by, edges)
        return MetricsResult({})

    def _values(
        self,
        metric: MetricSpec,
        group_by: GroupBy | None,
        edges: list[datetime],
    ) -> dict[GroupKey, Any]:
        match metric:
            case RunMetricSpec():
                result = self._aggregate(metric, group_by, edges)
                return {key: metric.value(metrics) for key, metrics in result.by_bucket.items()}
            case FeedbackMetricSpec():
                return self._feedback_values(metric, edges)
            case RatioSpec():
                # The largest groups are those of the denominator.
                numerators = self._values(metric.numerator, _without_limit(group_by), edges)
                denominators = self._values(metric.denominator, group_by, edges)
                return {
                    key: (numerators.get(key) or 0) / denominator
                    for key, denominator in denominators.items()
                    if denominator
                }

    def _aggregate(
        self,
        metric: RunMetricSpec,
        group_by: GroupBy | None,
        edges: list[datetime],
    ) -> MetricsResult:
        selection = _selection_key(metric)
        measures, quantiles = self._measures[selection], self._quantiles[selection]
        key = (*selection, group_by, tuple(edges), frozenset(measures), frozenset(quantiles))
        if key not in self._results:
            self._results[key] = run_store.aggregate(
                self.workspace_id,
                MetricsQuery(
                    query=self.time_range.bound(extract_root_condition(metric.query)),
                    edges=edges,
                    group_by=group_by,
                    depth=metric.depth,
                    measures=[measure for measure in Measure if measure in measures],
                    quantiles=sorted(quantiles),
                ),
            )
        return self._results[key]

    def _feedback_values(
        self, metric: FeedbackMetricSpec, edges: list[datetime]
    ) -> dict[GroupKey, Any]:
        query = self.time_range.bound(extract_root_condition(metric.query))
        stats_by_key = score_series.by_bucket(self.workspace_id, query, edges, metric.key)
        return {
            (bucket, None if metric.key else key): metric.value(stats)
            for (bucket, key), stats in stats_by_key.items()
        }


def _selection_key(metric: RunMetricSpec) -> tuple[Any, ...]:
    query = metric.query
    where = (query.where, query.where_root, query.where_any, query.is_root, query.run_type)
    return (tuple(query.project_ids or ()), repr(where), metric.depth)


def _without_limit(group_by: GroupBy | None) -> GroupBy | None:
    return group_by and replace(group_by, max_groups=sys.maxsize)


def _run_metrics(all_series: Sequence[Series]) -> Iterator[RunMetricSpec]:
    """Yield the metrics of runs that the series need."""
    pending: list[MetricSpec] = [series.metric for series in all_series]
    while pending:
        metric = pending.pop()
        match metric:
            case RunMetricSpec():
                yield metric
            case RatioSpec():
                pending += [metric.numerator, metric.denominator]


def _is_count(metric: MetricSpec) -> bool:
    """Whether a bucket without runs has the value 0, as counts and sums do."""
    return isinstance(metric, RunMetricSpec) and metric.value(RunMetrics()) == 0
