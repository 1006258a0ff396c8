"""The chart strip and the facets of the run list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from apps.trace_store import run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery
from apps.trace_store.metrics import Measure
from apps.tracing.models import Project
from apps.tracing.pages import filter_clauses
from apps.tracing.pages.run_list import ListState
from apps.tracing.services.facets import SAMPLE_SIZE, collect_facets, is_sdk_metadata
from apps.web_ui.badges import BADGES, RUN_STATUSES
from apps.web_ui.charts import Line, LineChart, bucket_edges
from apps.web_ui.formatting import format_date_time

FACET_VALUES = 30
VISIBLE_VALUES = 6


def load_strip(project: Project, state: ListState) -> list[LineChart]:
    """Load run count, error count and latency over the list's period.

    An invalid filter, which the list reports, is not applied.
    """
    query = state.without_invalid_filters.query(project)
    edges = bucket_edges(*state.period.limits, state.period.step)
    result = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(query=query, edges=edges, measures=(Measure.LATENCY,), quantiles=(0.5, 0.95)),
    )
    buckets = [result.by_bucket.get((index, None)) for index in range(len(edges) - 1)]
    errors = [item.errors if item else 0 for item in buckets]
    successes = [item.successes if item else 0 for item in buckets]
    other_counts = {
        ("interrupted", "4"): [item.interrupted if item else 0 for item in buckets],
        ("cancelled", "5"): [item.cancelled if item else 0 for item in buckets],
        ("pending", "3"): [item.pending if item else 0 for item in buckets],
    }
    median, p95 = (
        [item.quantile(Measure.LATENCY, share) if item else None for item in buckets]
        for share in (0.5, 0.95)
    )
    note = _since(result.counted_since)
    list_url = state.build_url(drop=("range", "from", "to"))
    lines = [
        _status_line(state, "error", "error", errors),
        _status_line(state, "success", "1", successes),
    ]
    for (status, hue), counts in other_counts.items():
        if any(counts):
            lines.append(_status_line(state, status, hue, counts))
    return [
        LineChart(
            "strip-count",
            state.title,
            "count",
            "stack",
            edges,
            lines,
            href=list_url,
            total=f"{result.overall.runs:,}".replace(",", "\u202f"),
            note=note,
        ),
        LineChart(
            "strip-latency",
            "Latency",
            "s",
            "line",
            edges,
            [Line("p50", "1", median), Line("p95", "2", p95)],
            href=list_url,
            note=note,
        ),
    ]


def _status_line(state: ListState, status: str, hue: str, counts: list[int]) -> Line:
    url = state.build_url(filter=filter_clauses.toggle_value(state.filter, "status", status))
    return Line(BADGES[status].label, hue, counts, url)


@dataclass(frozen=True)
class FacetValue:
    label: str
    count: int
    url: str
    is_selected: bool


@dataclass(frozen=True)
class Facet:
    title: str
    values: Sequence[FacetValue]
    note: str = ""
    """Which runs the counts include, unless it is all of them."""
    is_sdk: bool = False
    """Whether it is metadata that SDKs add, which is folded."""

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

    A selected value does not limit the listed values of its field, so that more can be selected.
    """
    state = state.without_invalid_filters
    query = state.query(project)
    values_by_key: dict[str, list[FacetValue]] = {name: [] for name in FACET_FIELDS}
    notes: dict[str, str] = {}
    for item in collect_facets(project.workspace_id, query):
        if item["key"] in FACET_FIELDS:
            value = _field_facet(state, item["key"], item["value"], item["n"])
        else:
            value = _clause_facet(state, item["value"], item["n"], item["query"])
        values_by_key.setdefault(item["key"], []).append(value)
        notes[item["key"]] = _counted_runs(item)
    for name in FACET_FIELDS:
        if filter_clauses.selected_values(state.filter, name):
            values_by_key[name], since = _values_without_field(project, state, name)
            notes[name] = _since(since)
    return [
        Facet(_facet_title(key), values, notes.get(key, ""), _is_folded(key, values))
        for key, values in values_by_key.items()
        if values and (key != "run_type" or len(values) > 1 or values[0].is_selected)
    ]


def _counted_runs(item: dict[str, Any]) -> str:
    if item.get("is_sample"):
        return f"of the newest {SAMPLE_SIZE:,}".replace(",", "\u202f")
    return _since(item.get("counted_since"))


def _since(first: datetime | None) -> str:
    return f"since {format_date_time(first)}" if first else ""


def suggest_values(
    project: Project, state: ListState, name: str, metadata_key: str = ""
) -> list[str]:
    """Return the most frequent values of a field; of metadata, those of the key if it is given."""
    if name == "model":
        return _frequent_models(project, state)
    key = _SUGGESTED_FIELDS.get("tags" if name == "tag" else name)
    if key is None and "metadata" not in name:
        return []
    facets = collect_facets(project.workspace_id, state.query(project))
    if name == "metadata_key":
        keys = (item["key"] for item in facets if item["key"].startswith("metadata."))
        return list(dict.fromkeys(item.removeprefix("metadata.") for item in keys))
    if name == "metadata_value":
        return [
            item["value"]
            for item in facets
            if item["key"].startswith("metadata.")
            and metadata_key in ("", item["key"].removeprefix("metadata."))
        ]
    return [item["value"] for item in facets if item["key"] == key]


def _frequent_models(project: Project, state: ListState) -> list[str]:
    """Return the models of all runs of the period: those of traces are on inner runs."""
    query = replace(state, show="all").query(project)
    group_by = GroupBy(GroupAttribute.MODEL, max_groups=FACET_VALUES)
    result = run_store.aggregate(
        project.workspace_id, MetricsQuery(query=query, group_by=group_by, measures=())
    )
    counts = {model: metrics.runs for model, metrics in result.by_group.items() if model}
    return sorted(counts, key=lambda model: (-counts[model], model))


def _is_folded(key: str, values: Sequence[FacetValue]) -> bool:
    is_sdk = key.startswith("metadata.") and is_sdk_metadata(key.removeprefix("metadata."))
    return is_sdk and not any(value.is_selected for value in values)


def _facet_title(key: str) -> str:
    if key in FACET_FIELDS:
        return FACET_FIELDS[key][0]
    return _FACET_TITLES.get(key, key.removeprefix("metadata."))


def _field_facet(state: ListState, name: str, value: str, count: int) -> FacetValue:
    text = filter_clauses.toggle_value(state.filter, name, value)
    is_selected = value in filter_clauses.selected_values(state.filter, name)
    is_status = name == "status" and value in RUN_STATUSES
    label = BADGES[value].label if is_status else value
    return FacetValue(label, count, state.build_url(filter=text, view=""), is_selected)


def _values_without_field(
    project: Project, state: ListState, name: str
) -> tuple[list[FacetValue], datetime | None]:
    text = filter_clauses.remove_field(state.filter, name)
    result = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(
            query=state.with_filter(text).query(project),
            group_by=GroupBy(FACET_FIELDS[name][1], max_groups=FACET_VALUES),
            measures=(),
        ),
    )
    counts = dict.fromkeys(filter_clauses.selected_values(state.filter, name), 0)
    counts |= {group: metrics.runs for group, metrics in result.by_group.items() if group}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    values = [_field_facet(state, name, value, count) for value, count in ordered]
    return values, result.counted_since


def _clause_facet(state: ListState, label: str, count: int, clause: str) -> FacetValue:
    url = state.build_url(filter=filter_clauses.toggle_clause(state.filter, clause), view="")
    return FacetValue(label, count, url, filter_clauses.has_clause(state.filter, clause))
