"""What a series of a chart asks, as the wire says it, and as questions to the store of runs."""

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
from apps.tracing.services.statistics import NUMBERS

FEEDBACK_METRICS = ("feedback", "feedback_score_avg", "feedback_values")
METRICS = (*(name for name in NUMBERS if name != "last_run_start_time"), *FEEDBACK_METRICS)
FEEDBACK_FIELD = "feedback_score"
FIELDS = (*map(str, Measure), FEEDBACK_FIELD)
DEFINITIONS = ("count", "sum", "max", "min", "avg", "percentile", "ratio")
_DEEPEST = 4
_PROJECTS, _DATASETS = "tracing_project", "dataset"

Value = int | float | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunPart:
    """A figure of runs."""

    query: RunQuery
    value: Callable[[RunMetrics], Any]
    measures: tuple[Measure, ...] = ()
    quantiles: tuple[float, ...] = (0.5, 0.99)
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class FeedbackPart:
    """A figure of the feedback on runs."""

    query: RunQuery
    key: str | None
    value: Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class RatioPart:
    numerator: Part
    denominator: Part


Part = RunPart | FeedbackPart | RatioPart


@dataclass(frozen=True, slots=True)
class Series:
    id: str
    name: str
    part: Part
    group_by: GroupBy | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Which runs a chart is about, before its series say more."""

    project_ids: Sequence[UUID]
    """All of which the caller may read."""
    common: Mapping[str, Any] = field(default_factory=dict)
    datasets: Mapping[UUID, UUID] = field(default_factory=dict)
    """Of those that are experiments: on which dataset."""
    workspace_id: UUID | None = None
    """Whose they are; None where that is looked at elsewhere."""


def series_of(said: Mapping[str, Any], scope: Scope, section_group: GroupBy | None) -> Series:
    """The series; `Invalid` says what in it makes no sense."""
    _refuse_what_is_not_computed(said, scope)
    query = _query(said, scope)
    definition = said.get("metric_definition")
    if definition:
        part = _defined(definition, query, 0)
    else:
        part = _metric(str(said.get("metric") or "run_count"), said.get("feedback_key"), query)
    if isinstance(part, FeedbackPart) and _group_by(said) is not None:
        raise errors.Invalid("group_by: runs are grouped, feedback on them is not.")
    return Series(
        id=str(said.get("id") or ""),
        name=str(said.get("name") or ""),
        part=part,
        group_by=_group_by(said) or section_group,
    )


def _refuse_what_is_not_computed(said: Mapping[str, Any], scope: Scope) -> None:
    """A chart that leaves out half of what it was asked for would be a wrong chart."""
    if said.get("project_metric"):
        raise errors.Invalid("project_metric: this server has metrics of runs alone.")
    if len(said.get("group_by_definitions") or ()) > 1:
        raise errors.Invalid("group_by_definitions: runs are grouped by one thing at a time.")
    named = said.get("workspace_id")
    if named and scope.workspace_id is not None and str(named) != str(scope.workspace_id):
        raise errors.Invalid("workspace_id: charts of a workspace are about that workspace.")


def _query(said: Mapping[str, Any], scope: Scope) -> RunQuery:
    own, common = said.get("filters") or {}, scope.common
    definition = said.get("filter_definition") or {}
    wanted = definition.get("project_ids") or own.get("session") or common.get("session")
    projects = list(scope.project_ids)
    if wanted:
        named = {str(project_id) for project_id in wanted}
        projects = [one for one in projects if str(one) in named]
    if definition.get("source_type", _PROJECTS) not in {_PROJECTS, _DATASETS}:
        raise errors.Invalid(f"filter_definition.source_type: {_PROJECTS} or {_DATASETS}.")
    if definition.get("source_type") == _DATASETS:
        experiments = [one for one in projects if one in scope.datasets]
        asked = {str(dataset_id) for dataset_id in definition.get("dataset_ids") or ()}
        projects = [one for one in experiments if not asked or str(scope.datasets[one]) in asked]
    return RunQuery(
        project_ids=projects,
        where=_all(common.get("filter"), own.get("filter"), definition.get("run_filter")),
        where_root=_all(
            common.get("trace_filter"), own.get("trace_filter"), definition.get("trace_filter")
        ),
        where_any=_all(
            common.get("tree_filter"), own.get("tree_filter"), definition.get("tree_filter")
        ),
    )


def _all(*texts: str | None) -> Expression | None:
    return filters.all_of([filters.parse(text) for text in texts if text])


def _metric(metric: str, feedback_key: str | None, query: RunQuery) -> Part:
    if metric in FEEDBACK_METRICS:
        return FeedbackPart(query, feedback_key, _FEEDBACK_VALUES[metric])
    if metric not in METRICS:
        raise errors.Invalid(f"metric: {metric!r:.60} is none that is known.")
    return RunPart(query, _plain(NUMBERS[metric]), measures_of(metric))


_FEEDBACK_VALUES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "feedback": lambda one: {"n": one["n"], "avg": one["avg"], "values": one["values"]},
    "feedback_score_avg": lambda one: one["avg"],
    "feedback_values": lambda one: one["values"],
}


def measures_of(metric: str) -> tuple[Measure, ...]:
    """What must be looked up for the metric."""
    if metric in {"run_count", "error_rate", "streaming_rate"}:
        return ()
    if metric.startswith("latency"):
        return (Measure.LATENCY,)
    if metric.startswith("first_token"):
        return (Measure.FIRST_TOKEN,)
    kind = "cost" if "cost" in metric else "tokens"
    which = next((one for one in ("prompt", "completion") if metric.startswith(one)), "total")
    return (Measure(f"{which}_{kind}"),)


def _defined(said: Mapping[str, Any], query: RunQuery, depth: int) -> Part:
    kind = said.get("type")
    if kind not in DEFINITIONS:
        raise errors.Invalid(f"metric_definition.type: one of {', '.join(DEFINITIONS)}.")
    if kind == "ratio":
        upper, lower = said.get("numerator"), said.get("denominator")
        if depth >= _DEEPEST or not isinstance(upper, dict) or not isinstance(lower, dict):
            raise errors.Invalid("metric_definition: a ratio has a numerator and a denominator.")
        return RatioPart(_defined(upper, query, depth + 1), _defined(lower, query, depth + 1))
    query = _narrowed(query, said.get("filter"))
    entity = said.get("entity") or "run"
    if entity not in {"run", "feedback"}:
        raise errors.Invalid("metric_definition.entity: run or feedback.")
    if kind == "count" and entity == "feedback":
        key = _feedback_key(said.get("params") or {})
        return FeedbackPart(query, key, lambda one: one["count"])
    if kind == "count":
        return RunPart(query, lambda figures: figures.runs)
    name, params = said.get("field"), said.get("params") or {}
    if name not in FIELDS:
        raise errors.Invalid(f"metric_definition.field: one of {', '.join(FIELDS)}.")
    if name == FEEDBACK_FIELD:
        return _defined_feedback(kind, query, params)
    measure = Measure(str(name))
    if kind == "percentile":
        share = _share(params)
        value = _plain(lambda figures: figures.quantile(measure, share))
        return RunPart(query, value, (measure,), (share,))
    take: dict[str, Callable[[RunMetrics], Any]] = {
        "sum": lambda figures: figures.total(measure),
        "max": lambda figures: figures.most(measure),
        "min": lambda figures: figures.least(measure),
        "avg": lambda figures: figures.average(measure),
    }
    return RunPart(query, _plain(take[kind]), (measure,))


def _defined_feedback(kind: str, query: RunQuery, params: Mapping[str, Any]) -> Part:
    key = _feedback_key(params)
    name = {"sum": "sum", "max": "max", "min": "min", "avg": "avg"}.get(kind)
    if name is None:
        raise errors.Invalid("metric_definition.type: feedback has sum, max, min and avg.")
    return FeedbackPart(query, key, lambda one: one[name])


def _feedback_key(params: Mapping[str, Any]) -> str:
    key = params.get("feedback_key")
    if not isinstance(key, str) or not key:
        raise errors.Invalid("metric_definition.params.feedback_key: names the feedback.")
    return key


def _share(params: Mapping[str, Any]) -> float:
    """`p` as a share, or in hundredths when it is more than one."""
    p = params.get("p")
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 100:
        raise errors.Invalid("metric_definition.params.p: a number from 0 to 100.")
    return p / 100 if p > 1 else float(p)


def _narrowed(query: RunQuery, text: str | None) -> RunQuery:
    if not text:
        return query
    return replace(query, where=filters.all_of([query.where, filters.parse(text)]))


def _plain(value: Callable[[RunMetrics], Any]) -> Callable[[RunMetrics], Any]:
    """Charts draw numbers, not exact money."""

    def found(figures: RunMetrics) -> Any:
        got = value(figures)
        return float(got) if isinstance(got, Decimal | str) else got

    return found


def _group_by(said: Mapping[str, Any]) -> GroupBy | None:
    group = said.get("group_by")
    definitions = said.get("group_by_definitions")
    if not group and definitions:
        group = definitions[0]
    return group_by_of(group)


def group_by_of(said: Mapping[str, Any] | None) -> GroupBy | None:
    if not said:
        return None
    attribute, path = said.get("attribute"), said.get("path")
    if attribute not in set(GroupAttribute):
        raise errors.Invalid(f"group_by.attribute: one of {', '.join(GroupAttribute)}.")
    if attribute == GroupAttribute.METADATA and not path:
        raise errors.Invalid("group_by.path: names the key of the metadata.")
    most = said.get("max_groups")
    if isinstance(most, bool) or not isinstance(most, int | None) or not 1 <= (most or 5) <= 100:
        raise errors.Invalid("group_by.max_groups: a number from 1 to 100.")
    return GroupBy(GroupAttribute(str(attribute)), str(path or ""), most or 5)
