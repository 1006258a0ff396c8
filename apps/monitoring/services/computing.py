"""The points of charts. Series that ask the same runs the same are looked up once."""

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
from apps.monitoring.series import FeedbackPart, Part, RatioPart, RunPart, Scope, Series, series_of
from apps.trace_store import run_store
from apps.trace_store.aggregation import GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.filters.query_analysis import extract_root_condition
from apps.trace_store.metrics import Measure, RunMetrics
from apps.tracing.models import Project

MOST_SERIES = 50
MOST_POINTS = 20_000
_DEFAULT = timedelta(days=7)
Key = tuple[int, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The time that charts show, and how it is cut."""

    start: datetime
    end: datetime
    stride: Stride
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    group_by: GroupBy | None = None
    with_data: bool = True

    @classmethod
    def of(
        cls,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        stride: Stride | None = None,
        **others: Any,
    ) -> Frame:
        """With the last week, and buckets that fit, where nothing is said."""
        end = end or datetime.now(UTC)
        start = start or end - _DEFAULT
        return cls(start=start, end=end, stride=stride or buckets.fitting(end - start), **others)

    def edges(self, chart_type: str) -> list[datetime]:
        if ChartType(chart_type).is_over_time:
            return buckets.edges(self.start, self.end, self.stride, self.zone)
        if self.end <= self.start:
            raise errors.Invalid("end_time: must be later than start_time.")
        return [self.start, self.end + timedelta(microseconds=1)]


@dataclass
class Computer:
    """Computes the charts of one request in one workspace."""

    workspace_id: UUID
    frame: Frame
    _answers: dict[Any, MetricsResult] = field(default_factory=dict)
    _needed: dict[Any, set[Measure]] = field(default_factory=dict)
    """What all charts that ask the same runs want to know of them."""

    @cached_property
    def _projects(self) -> dict[UUID, UUID | None]:
        """Each with the dataset that it is an experiment on."""
        projects = Project.objects.for_workspace(self.workspace_id).present()
        return dict(projects.values_list("pk", "reference_dataset_id"))

    def scope(self, common: Mapping[str, Any]) -> Scope:
        return Scope(
            list(self._projects),
            common,
            {project_id: on for project_id, on in self._projects.items() if on is not None},
            self.workspace_id,
        )

    def prepare(self, charts: Sequence[Mapping[str, Any]]) -> None:
        """Say which charts will be asked for, so that what they share is looked up once."""
        for chart in charts:
            scope = self.scope(chart["common_filters"])
            self._need([series_of(one, scope, self.frame.group_by) for one in chart["series"]])

    def _need(self, all_series: Sequence[Series]) -> None:
        for key, measures in _measures(all_series).items():
            self._needed.setdefault(key, set()).update(measures)

    def points(
        self, chart_type: str, said: Sequence[Mapping[str, Any]], common: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """The data points of a chart of the wire; `Invalid` for series that make no sense."""
        scope = self.scope(common)
        all_series = [series_of(one, scope, self.frame.group_by) for one in said]
        return self.points_of(chart_type, all_series)

    def points_of(self, chart_type: str, all_series: Sequence[Series]) -> list[dict[str, Any]]:
        if chart_type == ChartType.TEXT or not self.frame.with_data or not all_series:
            return []
        edges = self.frame.edges(chart_type)
        if len(all_series) > MOST_SERIES or len(all_series) * len(edges) > MOST_POINTS:
            raise errors.Invalid("series: these are more points than a chart can show.")
        self._need(all_series)
        return [point for series in all_series for point in self._points_of_one(series, edges)]

    def _points_of_one(self, series: Series, edges: list[datetime]) -> list[dict[str, Any]]:
        values = self._values(series.part, series.group_by, edges)
        nothing = 0 if _is_count(series.part) else None
        groups: list[str | None] = sorted({group for _, group in values}, key=str) or [None]
        return [
            {
                "series_id": series.id,
                "timestamp": edges[at],
                "value": values.get((at, group), nothing),
                "group": group,
            }
            for group in groups
            for at in range(len(edges) - 1)
        ]

    def _values(
        self,
        part: Part,
        group_by: GroupBy | None,
        edges: list[datetime],
    ) -> dict[Key, Any]:
        match part:
            case RunPart():
                answer = self._answer(part, group_by, edges)
                return {key: part.value(figures) for key, figures in answer.by_bucket.items()}
            case FeedbackPart():
                return self._feedback(part, edges)
            case RatioPart():
                upper = self._values(part.numerator, group_by, edges)
                lower = self._values(part.denominator, group_by, edges)
                return {key: (upper.get(key) or 0) / below for key, below in lower.items() if below}

    def _answer(
        self,
        part: RunPart,
        group_by: GroupBy | None,
        edges: list[datetime],
    ) -> MetricsResult:
        wanted = self._needed[_key(part)]
        key = (*_key(part), group_by, tuple(edges), frozenset(wanted))
        if key not in self._answers:
            self._answers[key] = run_store.aggregate(
                self.workspace_id,
                MetricsQuery(
                    query=extract_root_condition(part.query),
                    edges=edges,
                    group_by=group_by,
                    depth=part.depth,
                    measures=[measure for measure in Measure if measure in wanted],
                    quantiles=part.quantiles,
                ),
            )
        return self._answers[key]

    def _feedback(self, part: FeedbackPart, edges: list[datetime]) -> dict[Key, Any]:
        found = score_series.by_bucket(
            self.workspace_id, extract_root_condition(part.query), edges, part.key
        )
        return {
            (at, None if part.key else key): part.value(one) for (at, key), one in found.items()
        }


def _key(part: RunPart) -> tuple[Any, ...]:
    query = part.query
    where = (query.where, query.where_root, query.where_any, query.is_root, query.run_type)
    return (tuple(query.project_ids or ()), repr(where), part.depth, part.quantiles)


def _measures(all_series: Sequence[Series]) -> dict[Any, set[Measure]]:
    """What the series that share a question want to know together."""
    found: dict[Any, set[Measure]] = {}
    waiting: list[Part] = [series.part for series in all_series]
    while waiting:
        part = waiting.pop()
        match part:
            case RunPart():
                found.setdefault(_key(part), set()).update(part.measures)
            case RatioPart():
                waiting += [part.numerator, part.denominator]
    return found


def _is_count(part: Part) -> bool:
    """Whether nothing is told as 0: of counts and sums."""
    return isinstance(part, RunPart) and part.value(RunMetrics()) == 0
