"""Compute the data points of charts. Series over the same runs share one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from apps.trace_store import run_store
from apps.trace_store.aggregation import GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.filters.query_analysis import extract_root_condition
from apps.trace_store.metrics import Measure, RunMetrics
from apps.tracing.models import Project

MAX_SERIES = 50
MAX_POINTS = 20_000
_DEFAULT_LENGTH = timedelta(days=7)
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

    @classmethod
    def with_defaults(
        cls,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        stride: Stride | None = None,
        **options: Any,
    ) -> TimeRange:
        """Default to the last week, and to a stride that fits the length."""
        end = end or datetime.now(UTC)
        start = start or end - _DEFAULT_LENGTH
        return cls(
            start=start, end=end, stride=stride or buckets.choose_stride(end - start), **options
        )

    def edges(self, chart_type: str) -> list[datetime]:
        if ChartType(chart_type).is_over_time:
            return buckets.edges(self.start, self.end, self.stride, self.zone)
        if self.end <= self.start:
            raise errors.Invalid("end_time: must be later than start_time.")
        return [self.start, self.end + timedelta(microseconds=1)]


@dataclass
class ChartComputer:
    """Computes the charts of one request in one workspace."""

    workspace_id: UUID
    time_range: TimeRange
    _results: dict[Any, MetricsResult] = field(default_factory=dict)
    _measures: dict[Any, set[Measure]] = field(default_factory=dict)
    """The measures that all charts need, by the runs that they select."""

    @cached_property
    def _projects(self) -> dict[UUID, UUID | None]:
        """The projects of the workspace, with the dataset of each experiment."""
        projects = Project.objects.for_workspace(self.workspace_id).present()
        return dict(projects.values_list("pk", "reference_dataset_id"))

    def scope(self, common: Mapping[str, Any]) -> ChartScope:
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
        """Collect the measures of all charts before `points`, so that they share queries."""
        for chart in charts:
            scope = self.scope(chart["common_filters"])
            self._add_measures(self._parse(chart["series"], scope))

    def _parse(self, payload: Sequence[Mapping[str, Any]], scope: ChartScope) -> list[Series]:
        return [parse_series(series, scope, self.time_range.group_by) for series in payload]

    def _add_measures(self, all_series: Sequence[Series]) -> None:
        for key, measures in _measures_by_key(all_series).items():
            self._measures.setdefault(key, set()).update(measures)

    def points(
        self, chart_type: str, payload: Sequence[Mapping[str, Any]], common: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the data points of a chart. Raises `Invalid` for an invalid series."""
        all_series = self._parse(payload, self.scope(common))
        if chart_type == ChartType.TEXT or not self.time_range.with_data or not all_series:
            return []
        edges = self.time_range.edges(chart_type)
        if len(all_series) > MAX_SERIES or len(all_series) * len(edges) > MAX_POINTS:
            raise errors.Invalid("series: too many points for one chart.")
        self._add_measures(all_series)
        return [point for series in all_series for point in self._series_points(series, edges)]

    def _series_points(self, series: Series, edges: list[datetime]) -> list[dict[str, Any]]:
        values = self._values(series.metric, series.group_by, edges)
        empty_value = 0 if _is_count(series.metric) else None
        groups: list[str | None] = sorted({group for _, group in values}, key=str) or [None]
        return [
            {
                "series_id": series.id,
                "timestamp": edges[bucket],
                "value": values.get((bucket, group), empty_value),
                "group": group,
            }
            for group in groups
            for bucket in range(len(edges) - 1)
        ]

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
                return self._feedback(metric, edges)
            case RatioSpec():
                numerators = self._values(metric.numerator, group_by, edges)
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
        measures = self._measures[_selection_key(metric)]
        key = (*_selection_key(metric), group_by, tuple(edges), frozenset(measures))
        if key not in self._results:
            self._results[key] = run_store.aggregate(
                self.workspace_id,
                MetricsQuery(
                    query=extract_root_condition(metric.query),
                    edges=edges,
                    group_by=group_by,
                    depth=metric.depth,
                    measures=[measure for measure in Measure if measure in measures],
                    quantiles=metric.quantiles,
                ),
            )
        return self._results[key]

    def _feedback(self, metric: FeedbackMetricSpec, edges: list[datetime]) -> dict[GroupKey, Any]:
        stats_by_key = score_series.by_bucket(
            self.workspace_id, extract_root_condition(metric.query), edges, metric.key
        )
        return {
            (bucket, None if metric.key else key): metric.value(stats)
            for (bucket, key), stats in stats_by_key.items()
        }


def _selection_key(metric: RunMetricSpec) -> tuple[Any, ...]:
    query = metric.query
    where = (query.where, query.where_root, query.where_any, query.is_root, query.run_type)
    return (tuple(query.project_ids or ()), repr(where), metric.depth, metric.quantiles)


def _measures_by_key(all_series: Sequence[Series]) -> dict[Any, set[Measure]]:
    """Return the measures that the series need, by the runs that they select."""
    measures: dict[Any, set[Measure]] = {}
    pending: list[MetricSpec] = [series.metric for series in all_series]
    while pending:
        metric = pending.pop()
        match metric:
            case RunMetricSpec():
                measures.setdefault(_selection_key(metric), set()).update(metric.measures)
            case RatioSpec():
                pending += [metric.numerator, metric.denominator]
    return measures


def _is_count(metric: MetricSpec) -> bool:
    """Whether a bucket without runs has the value 0, as counts and sums do."""
    return isinstance(metric, RunMetricSpec) and metric.value(RunMetrics()) == 0
