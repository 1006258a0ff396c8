"""The chart strip and the facets of the run list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apps.trace_store import run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery
from apps.trace_store.errors import FilterError
from apps.trace_store.metrics import Measure
from apps.tracing.models import Project
from apps.tracing.pages import filter_clauses
from apps.tracing.pages.run_list import ListState
from apps.tracing.services.facets import collect_facets
from apps.web_ui.charts import Chart, Line, edges

FACET_VALUES = 30
VISIBLE_VALUES = 6


def load_strip(project: Project, state: ListState) -> list[Chart]:
    """Load run count, error count and latency over the list's period.

    Returns None for an invalid filter, which the list reports.
    """
    try:
        query = state.query(project)
    except FilterError:
        return []
    bounds = edges(*state.period.limits, state.period.step)
    answer = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(query=query, edges=bounds, measures=(Measure.LATENCY,), quantiles=(0.5, 0.95)),
    )
    results = [answer.by_bucket.get((index, None)) for index in range(len(bounds) - 1)]
    good = [item.runs - item.errors if item else 0 for item in results]
    bad = [item.errors if item else 0 for item in results]
    half, most = (
        [item.quantile(Measure.LATENCY, share) if item else None for item in results]
        for share in (0.5, 0.95)
    )
    whole = answer.whole
    note = f"since {answer.counted_since:%-d %b %H:%M}" if answer.counted_since else ""
    here = state.address(drop=("range", "from", "to"))
    failed = state.address(filter=filter_clauses.toggle_value(state.filter, "status", "error"))
    return [
        Chart(
            "strip-count",
            state.title,
            "count",
            "stack",
            bounds,
            [Line("failed", "error", bad, failed), Line("done", "1", good, here)],
            href=here,
            total=f"{whole.runs:,}".replace(",", "\u202f"),
            note=note,
        ),
        Chart(
            "strip-latency",
            "Latency",
            "s",
            "line",
            bounds,
            [Line("p50", "1", half), Line("p95", "2", most)],
            href=here,
            note=note,
        ),
    ]


@dataclass(frozen=True)
class FacetValue:
    label: str
    count: int
    address: str
    is_chosen: bool


@dataclass(frozen=True)
class Facet:
    title: str
    values: Sequence[FacetValue]

    @property
    def first(self) -> Sequence[FacetValue]:
        return self.values[:VISIBLE_VALUES]

    @property
    def rest(self) -> Sequence[FacetValue]:
        return self.values[VISIBLE_VALUES:]


FACET_FIELDS = {
    "status": ("Status", GroupAttribute.STATUS),
    "name": ("Name", GroupAttribute.NAME),
    "run_type": ("Type", GroupAttribute.RUN_TYPE),
}
_FACET_TITLES = {"tag": "Tags", "feedback_key": "Feedback"}
_SUGGESTED_FIELDS = {
    **{name: name for name in FACET_FIELDS},
    "tags": "tag",
    "feedback_key": "feedback_key",
}


def load_facets(project: Project, state: ListState) -> list[Facet]:
    """Load the most frequent values in the list's period; each links to the toggled filter.

    A selection in a field does not limit that field's values, so that others can be added.
    """
    try:
        query = state.query(project)
    except FilterError:
        return []
    result: dict[str, list[FacetValue]] = {name: [] for name in FACET_FIELDS}
    for item in collect_facets(project.workspace_id, query):
        if item["key"] in FACET_FIELDS:
            value = _field_facet(state, item["key"], item["value"], item["n"])
        else:
            value = _facet_clause(state, item["value"], item["n"], item["query"])
        result.setdefault(item["key"], []).append(value)
    for name in FACET_FIELDS:
        if filter_clauses.chosen_values(state.filter, name):
            result[name] = _query_without_field(project, state, name)
    useful = {
        key: suggest_values
        for key, suggest_values in result.items()
        if suggest_values
        and (
            key == "name"
            or key not in FACET_FIELDS
            or len(suggest_values) > 1
            or suggest_values[0].is_chosen
        )
    }
    return [Facet(_facet_title(key), suggest_values) for key, suggest_values in useful.items()]


def suggest_values(project: Project, state: ListState, name: str) -> list[str]:
    """Return the most frequent values of a field."""
    key = _SUGGESTED_FIELDS.get("tags" if name == "tag" else name)
    result = (
        collect_facets(project.workspace_id, state.query(project))
        if key or "metadata" in name
        else []
    )
    if name == "metadata_key":
        keys = (item["key"] for item in result if item["key"].startswith("metadata."))
        return list(dict.fromkeys(item.removeprefix("metadata.") for item in keys))
    if name == "metadata_value":
        return [item["value"] for item in result if item["key"].startswith("metadata.")]
    return [item["value"] for item in result if item["key"] == key]


def _facet_title(key: str) -> str:
    if key in FACET_FIELDS:
        return FACET_FIELDS[key][0]
    return _FACET_TITLES.get(key, key.removeprefix("metadata."))


def _field_facet(state: ListState, name: str, value: str, count: int) -> FacetValue:
    text = filter_clauses.toggle_value(state.filter, name, value)
    is_chosen = value in filter_clauses.chosen_values(state.filter, name)
    return FacetValue(value, count, state.address(filter=text, view=""), is_chosen)


def _query_without_field(project: Project, state: ListState, name: str) -> list[FacetValue]:
    text = filter_clauses.remove_field(state.filter, name)
    answer = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(
            query=state.saying(text).query(project),
            group_by=GroupBy(FACET_FIELDS[name][1], max_groups=FACET_VALUES),
            measures=(),
        ),
    )
    counted = {group: figures.runs for group, figures in answer.by_group.items() if group}
    counted |= {
        entry: 0
        for entry in filter_clauses.chosen_values(state.filter, name)
        if entry not in counted
    }
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [_field_facet(state, name, value, count) for value, count in ordered]


def _facet_clause(state: ListState, label: str, count: int, clause: str) -> FacetValue:
    address = state.address(filter=filter_clauses.toggle_clause(state.filter, clause), view="")
    return FacetValue(label, count, address, filter_clauses.has_clause(state.filter, clause))
