"""Parse the series of a chart from JSON into queries of the run store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.core import errors
from apps.trace_store import RunQuery, filters
from apps.trace_store.aggregation import GroupAttribute, GroupBy
from apps.trace_store.filters import Expression
from apps.trace_store.metrics import Measure, RunMetrics
from apps.tracing.services import statistics

FEEDBACK_METRICS = ("feedback", "feedback_score_avg", "feedback_values")
METRICS = (
    *(name for name in statistics.METRICS if name != "last_run_start_time"),
    *FEEDBACK_METRICS,
)
FEEDBACK_FIELD = "feedback_score"
METRIC_FIELDS = (*map(str, Measure), FEEDBACK_FIELD)
DEFINITION_TYPES = ("count", "sum", "max", "min", "avg", "percentile", "ratio")
DEFAULT_MAX_GROUPS = 5
_MAX_RATIO_DEPTH = 4
_PROJECTS, _DATASETS = "tracing_project", "dataset"

Value = int | float | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunMetricSpec:
    """A metric of runs."""

    query: RunQuery
    value: Callable[[RunMetrics], Any]
    measures: tuple[Measure, ...] = ()
    quantiles: tuple[float, ...] = (0.5, 0.99)
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class FeedbackMetricSpec:
    """A metric of the feedback on runs."""

    query: RunQuery
    key: str | None
    value: Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class RatioSpec:
    numerator: MetricSpec
    denominator: MetricSpec


MetricSpec = RunMetricSpec | FeedbackMetricSpec | RatioSpec


@dataclass(frozen=True, slots=True)
class Series:
    id: str
    name: str
    metric: MetricSpec
    group_by: GroupBy | None = None


@dataclass(frozen=True, slots=True)
class ChartScope:
    """The runs that a chart covers; its series narrow them down."""

    project_ids: Sequence[UUID]
    """The projects that the caller may read."""
    common: Mapping[str, Any] = field(default_factory=dict)
    datasets: Mapping[UUID, UUID] = field(default_factory=dict)
    """The dataset of each project that is an experiment."""
    workspace_id: UUID | None = None
    """The workspace that all series must be in; None if the caller checks it."""


def parse_series(
    payload: Mapping[str, Any], scope: ChartScope, section_group: GroupBy | None
) -> Series:
    """Parse a series. Raises `Invalid` with the name of the invalid field."""
    _reject_unsupported_fields(payload, scope)
    query = _build_query(payload, scope)
    definition = payload.get("metric_definition")
    if definition:
        metric = _parse_definition(definition, query, 0)
    else:
        metric = _metric_by_name(
            str(payload.get("metric") or "run_count"), payload.get("feedback_key"), query
        )
    if isinstance(metric, FeedbackMetricSpec) and _series_group_by(payload) is not None:
        raise errors.Invalid("group_by: feedback metrics cannot be grouped.")
    return Series(
        id=str(payload.get("id") or ""),
        name=str(payload.get("name") or ""),
        metric=metric,
        group_by=_series_group_by(payload) or section_group,
    )


def _reject_unsupported_fields(payload: Mapping[str, Any], scope: ChartScope) -> None:
    """Raise `Invalid` for a field that the chart would ignore."""
    if payload.get("project_metric"):
        raise errors.Invalid("project_metric: only run metrics are supported.")
    if len(payload.get("group_by_definitions") or ()) > 1:
        raise errors.Invalid("group_by_definitions: only one grouping is supported.")
    workspace_id = payload.get("workspace_id")
    if (
        workspace_id
        and scope.workspace_id is not None
        and str(workspace_id) != str(scope.workspace_id)
    ):
        raise errors.Invalid("workspace_id: must be the workspace of the chart.")


def _build_query(payload: Mapping[str, Any], scope: ChartScope) -> RunQuery:
    series_filters, common = payload.get("filters") or {}, scope.common
    definition = payload.get("filter_definition") or {}
    filtered_ids = (
        definition.get("project_ids") or series_filters.get("session") or common.get("session")
    )
    project_ids = list(scope.project_ids)
    if filtered_ids:
        texts = {str(project_id) for project_id in filtered_ids}
        project_ids = [project_id for project_id in project_ids if str(project_id) in texts]
    if definition.get("source_type", _PROJECTS) not in {_PROJECTS, _DATASETS}:
        raise errors.Invalid(f"filter_definition.source_type: must be {_PROJECTS} or {_DATASETS}.")
    if definition.get("source_type") == _DATASETS:
        dataset_ids = {str(dataset_id) for dataset_id in definition.get("dataset_ids") or ()}
        project_ids = [
            project_id
            for project_id in project_ids
            if project_id in scope.datasets
            and (not dataset_ids or str(scope.datasets[project_id]) in dataset_ids)
        ]
    return RunQuery(
        project_ids=project_ids,
        where=_parse_filters(
            common.get("filter"), series_filters.get("filter"), definition.get("run_filter")
        ),
        where_root=_parse_filters(
            common.get("trace_filter"),
            series_filters.get("trace_filter"),
            definition.get("trace_filter"),
        ),
        where_any=_parse_filters(
            common.get("tree_filter"),
            series_filters.get("tree_filter"),
            definition.get("tree_filter"),
        ),
    )


def _parse_filters(*texts: str | None) -> Expression | None:
    return filters.all_of([filters.parse(text) for text in texts if text])


def _metric_by_name(metric: str, feedback_key: str | None, query: RunQuery) -> MetricSpec:
    if metric in FEEDBACK_METRICS:
        return FeedbackMetricSpec(query, feedback_key, _FEEDBACK_VALUES[metric])
    if metric not in METRICS:
        raise errors.Invalid(f"metric: unknown metric {metric!r:.60}.")
    return RunMetricSpec(query, _as_float(statistics.METRICS[metric]), required_measures(metric))


_FEEDBACK_VALUES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "feedback": lambda stats: {"n": stats["n"], "avg": stats["avg"], "values": stats["values"]},
    "feedback_score_avg": lambda stats: stats["avg"],
    "feedback_values": lambda stats: stats["values"],
}


def required_measures(metric: str) -> tuple[Measure, ...]:
    """Return the measures that the metric is computed from."""
    if metric in {"run_count", "error_rate", "streaming_rate"}:
        return ()
    if metric.startswith("latency"):
        return (Measure.LATENCY,)
    if metric.startswith("first_token"):
        return (Measure.FIRST_TOKEN,)
    kind = "cost" if "cost" in metric else "tokens"
    part = next((name for name in ("prompt", "completion") if metric.startswith(name)), "total")
    return (Measure(f"{part}_{kind}"),)


def _parse_definition(payload: Mapping[str, Any], query: RunQuery, depth: int) -> MetricSpec:
    kind = payload.get("type")
    if kind not in DEFINITION_TYPES:
        raise errors.Invalid(
            f"metric_definition.type: must be one of {', '.join(DEFINITION_TYPES)}."
        )
    if kind == "ratio":
        numerator, denominator = payload.get("numerator"), payload.get("denominator")
        if not isinstance(numerator, dict) or not isinstance(denominator, dict):
            raise errors.Invalid("metric_definition: a ratio needs a numerator and a denominator.")
        if depth >= _MAX_RATIO_DEPTH:
            raise errors.Invalid(
                f"metric_definition: ratios nest at most {_MAX_RATIO_DEPTH} levels deep."
            )
        return RatioSpec(
            _parse_definition(numerator, query, depth + 1),
            _parse_definition(denominator, query, depth + 1),
        )
    query = _add_filter(query, payload.get("filter"))
    entity = payload.get("entity") or "run"
    if entity not in {"run", "feedback"}:
        raise errors.Invalid("metric_definition.entity: must be run or feedback.")
    if kind == "count" and entity == "feedback":
        key = _parse_feedback_key(payload.get("params") or {})
        return FeedbackMetricSpec(query, key, lambda stats: stats["count"])
    if kind == "count":
        return RunMetricSpec(query, lambda metrics: metrics.runs)
    name, params = payload.get("field"), payload.get("params") or {}
    if name not in METRIC_FIELDS:
        raise errors.Invalid(f"metric_definition.field: must be one of {', '.join(METRIC_FIELDS)}.")
    if name == FEEDBACK_FIELD:
        return _parse_feedback_definition(kind, query, params)
    measure = Measure(str(name))
    if kind == "percentile":
        quantile = _parse_quantile(params)
        value = _as_float(lambda metrics: metrics.quantile(measure, quantile))
        return RunMetricSpec(query, value, (measure,), (quantile,))
    aggregates: dict[str, Callable[[RunMetrics], Any]] = {
        "sum": lambda metrics: metrics.total(measure),
        "max": lambda metrics: metrics.most(measure),
        "min": lambda metrics: metrics.least(measure),
        "avg": lambda metrics: metrics.average(measure),
    }
    return RunMetricSpec(query, _as_float(aggregates[kind]), (measure,))


def _parse_feedback_definition(kind: str, query: RunQuery, params: Mapping[str, Any]) -> MetricSpec:
    key = _parse_feedback_key(params)
    if kind not in {"sum", "max", "min", "avg"}:
        raise errors.Invalid("metric_definition.type: feedback supports sum, max, min and avg.")
    return FeedbackMetricSpec(query, key, lambda stats: stats[kind])


def _parse_feedback_key(params: Mapping[str, Any]) -> str:
    key = params.get("feedback_key")
    if not isinstance(key, str) or not key:
        raise errors.Invalid("metric_definition.params.feedback_key: required.")
    return key


def _parse_quantile(params: Mapping[str, Any]) -> float:
    """Return `p` as a quantile; a value above 1 is a percentage."""
    p = params.get("p")
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 100:
        raise errors.Invalid("metric_definition.params.p: must be a number from 0 to 100.")
    return p / 100 if p > 1 else float(p)


def _add_filter(query: RunQuery, text: str | None) -> RunQuery:
    if not text:
        return query
    return replace(query, where=filters.all_of([query.where, filters.parse(text)]))


def _as_float(value: Callable[[RunMetrics], Any]) -> Callable[[RunMetrics], Any]:
    """Convert decimals to floats: charts need no exact amounts of money."""

    def convert(metrics: RunMetrics) -> Any:
        result = value(metrics)
        return float(result) if isinstance(result, Decimal | str) else result

    return convert


def _series_group_by(payload: Mapping[str, Any]) -> GroupBy | None:
    group = payload.get("group_by")
    definitions = payload.get("group_by_definitions")
    if not group and definitions:
        group = definitions[0]
    return parse_group_by(group)


def parse_group_by(payload: Mapping[str, Any] | None) -> GroupBy | None:
    if not payload:
        return None
    attribute, path = payload.get("attribute"), payload.get("path")
    if attribute not in set(GroupAttribute):
        raise errors.Invalid(f"group_by.attribute: must be one of {', '.join(GroupAttribute)}.")
    if attribute == GroupAttribute.METADATA and not path:
        raise errors.Invalid("group_by.path: required for metadata; set it to the metadata key.")
    limit = payload.get("max_groups")
    if isinstance(limit, bool) or not isinstance(limit, int | None):
        raise errors.Invalid("group_by.max_groups: must be a number from 1 to 100.")
    limit = limit or DEFAULT_MAX_GROUPS
    if not 1 <= limit <= 100:
        raise errors.Invalid("group_by.max_groups: must be a number from 1 to 100.")
    return GroupBy(GroupAttribute(str(attribute)), str(path or ""), limit)
