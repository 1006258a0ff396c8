"""The chart strip and the facets of the run list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from apps.trace_store import run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery
from apps.trace_store.filters.formatting import keyed_name, quote_query
from apps.trace_store.filters.query_fields import DEPLOYMENT_KEY, QUERY_FIELDS_BY_NAME
from apps.trace_store.metrics import Measure
from apps.tracing.models import Project
from apps.tracing.pages import number_facets, query_clauses
from apps.tracing.pages.list_state import ListState
from apps.tracing.pages.periods import read_period
from apps.tracing.services import facets
from apps.tracing.services.facets import collect_facets, is_technical
from apps.web_ui.badges import BADGES, RUN_STATUSES
from apps.web_ui.charts import STATUS_HUES, Line, LineChart, bucket_edges
from apps.web_ui.formatting import format_count, format_date_time

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
        "interrupted": [item.interrupted if item else 0 for item in buckets],
        "cancelled": [item.cancelled if item else 0 for item in buckets],
        "pending": [item.pending if item else 0 for item in buckets],
    }
    median, p95 = (
        [item.quantile(Measure.LATENCY, share) if item else None for item in buckets]
        for share in (0.5, 0.95)
    )
    note = _since(result.counted_since)
    list_url = state.build_url(drop=("range", "from", "to"))
    lines = [
        _status_line(state, "success", successes),
        _status_line(state, "error", errors),
    ]
    for status, counts in other_counts.items():
        if any(counts):
            lines.append(_status_line(state, status, counts))
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


def _status_line(state: ListState, status: str, counts: list[int]) -> Line:
    url = state.build_url(query=query_clauses.toggle_value(state.query_text, "status", status))
    return Line(BADGES[status].label, STATUS_HUES[status], counts, url)


@dataclass(frozen=True)
class FacetValue:
    label: str
    count: int
    url: str
    is_selected: bool
    exclude_url: str = ""
    """The URL of the list without the runs that have the value."""


@dataclass(frozen=True)
class Facet:
    title: str
    values: Sequence[FacetValue]
    note: str = ""
    """Which runs the counts include, unless it is all of them."""
    is_technical: bool = False
    """Whether it is metadata that SDKs and servers add, which is folded."""

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
    "model": ("Model", GroupAttribute.MODEL),
}
_FACET_TITLES = {
    "tag": "Tags",
    "feedback_key": "Feedback",
    f"metadata.{DEPLOYMENT_KEY}": "Deployment",
    "metadata.revision_id": "Revision",
}
_FACET_ORDER = (*FACET_FIELDS, *_FACET_TITLES)
"""The first facets; metadata of the user follows by frequency, then that of SDKs and servers."""
_MAX_HINTS = 4
_QUANTILES = (0.5, 0.95, 0.99)


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
            value = _clause_facet(state, item["key"], item["value"], item["n"])
        values_by_key.setdefault(item["key"], []).append(value)
        notes[item["key"]] = _counted_runs(item)
    for name in FACET_FIELDS:
        # Root runs have no model.
        is_counted_apart = name == "model" and state.show
        if is_counted_apart or query_clauses.selected_values(state.query_text, name):
            values_by_key[name], since = _values_without_field(project, state, name)
            notes[name] = _since(since)
    return [
        Facet(_facet_title(key), values, notes.get(key, ""), _is_folded(key, values))
        for key, values in sorted(values_by_key.items(), key=lambda item: _rank(item[0]))
        if values and (key != "run_type" or len(values) > 1 or values[0].is_selected)
    ]


def _rank(key: str) -> int:
    return _FACET_ORDER.index(key) if key in _FACET_ORDER else len(_FACET_ORDER)


def _counted_runs(item: dict[str, Any]) -> str:
    if item.get("is_sample"):
        return f"of the newest {facets.SAMPLE_SIZE:,}".replace(",", "\u202f")
    return _since(item.get("counted_since"))


def _since(first: datetime | None) -> str:
    return f"since {format_date_time(first)}" if first else ""


@dataclass(frozen=True)
class QueryHint:
    """A list that has runs where this one has none."""

    count: int
    without: str
    """The clause that the list leaves out; empty for a longer period."""
    url: str


def load_hints(project: Project, state: ListState) -> list[QueryHint]:
    """Count the runs without each of the first clauses, and those of the last 30 days."""
    state = state.without_invalid_filters
    hints: list[QueryHint] = []
    clauses = query_clauses.split_query(state.query_text)
    for clause in clauses[:_MAX_HINTS]:
        text = query_clauses.remove_clause(state.query_text, clause.text)
        shorter = state.with_query(text)
        url = state.build_url(query=text, view="")
        hints.append(QueryHint(_count_runs(project, shorter), clause.text, url))
    month = read_period({"range": "30d"})
    if month.start and state.period.start and month.start < state.period.start:
        url = state.build_url(drop=("from", "to"), range="30d")
        hints.append(QueryHint(_count_runs(project, replace(state, period=month)), "", url))
    return [hint for hint in hints if hint.count]


def _count_runs(project: Project, state: ListState) -> int:
    query = MetricsQuery(query=state.query(project), measures=())
    return run_store.aggregate(project.workspace_id, query).overall.runs


@dataclass(frozen=True)
class SuggestedValue:
    """A value of a field, as text of the query, with a note such as its number of runs."""

    text: str
    note: str


def suggest_values(project: Project, state: ListState, name: str) -> list[SuggestedValue]:
    """Return the most frequent values of a query field in the period, or quantiles of a number.

    `metadata.` and `feedback.` give the keys. A field without a list of values gives none.
    """
    if name in number_facets.MEASURES:
        return _quantiles(project, state, name)
    if name == "model":
        return _grouped_values(project, replace(state, show="all"), GroupAttribute.MODEL)
    facet_fields = {"status": "status", "name": "name", "type": "run_type"}
    if name in facet_fields:
        return _grouped_values(project, state, FACET_FIELDS[facet_fields[name]][1])
    query_field = QUERY_FIELDS_BY_NAME.get(name)
    keys = {f"metadata.{key}" for key in query_field.keys} if query_field else set()
    group, dot, inner = name.partition(".")
    if not (keys or name == "tag" or (dot and group in {"metadata", "feedback"})):
        return []
    facets = collect_facets(project.workspace_id, state.query(project))
    if dot and not inner:
        return _suggest_keys(facets, group)
    keys |= {name} if inner or name == "tag" else set()
    return [
        SuggestedValue(quote_query(item["value"]), format_count(item["n"]))
        for item in facets
        if item["key"] in keys
    ]


def _suggest_keys(facets: Sequence[dict[str, Any]], group: str) -> list[SuggestedValue]:
    if group == "feedback":
        return [
            SuggestedValue(f"{keyed_name(group, item['value'])}:", format_count(item["n"]))
            for item in facets
            if item["key"] == "feedback_key"
        ]
    counts: dict[str, int] = {}
    for item in facets:
        if item["key"].startswith("metadata."):
            counts[item["key"]] = counts.get(item["key"], 0) + item["n"]
    return [
        SuggestedValue(f"{keyed_name(group, key.removeprefix('metadata.'))}:", format_count(count))
        for key, count in counts.items()
    ]


def _grouped_values(
    project: Project, state: ListState, attribute: GroupAttribute
) -> list[SuggestedValue]:
    group_by = GroupBy(attribute, max_groups=FACET_VALUES)
    result = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(query=state.query(project), group_by=group_by, measures=()),
    )
    counts = {value: metrics.runs for value, metrics in result.by_group.items() if value}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    is_status = attribute is GroupAttribute.STATUS
    return [
        SuggestedValue(
            query_clauses.build_clause("status" if is_status else "name", [value]).partition(":")[
                2
            ],
            format_count(count),
        )
        for value, count in ordered
    ]


def _quantiles(project: Project, state: ListState, name: str) -> list[SuggestedValue]:
    measure = number_facets.MEASURES[name]
    result = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(query=state.query(project), measures=(measure,), quantiles=_QUANTILES),
    )
    suggestions = []
    for share in _QUANTILES:
        if (value := result.overall.quantile(measure, share)) is not None:
            text = number_facets.format_bound(float(value), measure)
            suggestions.append(SuggestedValue(f">{text}", f"p{share * 100:.0f}"))
    return suggestions


def _is_folded(key: str, values: Sequence[FacetValue]) -> bool:
    if key in _FACET_ORDER or not key.startswith("metadata."):
        return False
    is_folded = is_technical(key.removeprefix("metadata."))
    return is_folded and not any(value.is_selected for value in values)


def _facet_title(key: str) -> str:
    if key in FACET_FIELDS:
        return FACET_FIELDS[key][0]
    return _FACET_TITLES.get(key, key.removeprefix("metadata."))


def _field_facet(state: ListState, name: str, value: str, count: int) -> FacetValue:
    text = query_clauses.toggle_value(state.query_text, name, value)
    is_selected = value in query_clauses.selected_values(state.query_text, name)
    is_status = name == "status" and value in RUN_STATUSES
    label = BADGES[value].label if is_status else value
    return FacetValue(
        label,
        count,
        state.build_url(query=text, view=""),
        is_selected,
        _exclude_url(state, query_clauses.build_clause(name, [value])),
    )


def _exclude_url(state: ListState, clause: str) -> str:
    text = query_clauses.remove_clause(state.query_text, clause)
    return state.build_url(query=query_clauses.add_clause(text, f"-{clause}"), view="")


def _values_without_field(
    project: Project, state: ListState, name: str
) -> tuple[list[FacetValue], datetime | None]:
    text = query_clauses.remove_field(state.query_text, name)
    result = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(
            query=state.with_query(text).query(project),
            group_by=GroupBy(FACET_FIELDS[name][1], max_groups=FACET_VALUES),
            measures=(),
        ),
    )
    counts = dict.fromkeys(query_clauses.selected_values(state.query_text, name), 0)
    counts |= {group: metrics.runs for group, metrics in result.by_group.items() if group}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    values = [_field_facet(state, name, value, count) for value, count in ordered]
    return values, result.counted_since


def _clause_facet(state: ListState, key: str, label: str, count: int) -> FacetValue:
    clause = query_clauses.facet_clause(key, label)
    text = query_clauses.toggle_clause(state.query_text, clause)
    return FacetValue(
        label,
        count,
        state.build_url(query=text, view=""),
        query_clauses.has_clause(state.query_text, clause),
        _exclude_url(state, clause),
    )
