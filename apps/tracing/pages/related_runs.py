"""What stands beside a list of runs: its strip of charts, and the values that narrow it."""

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
from apps.tracing.services.facets import facets_of
from apps.web_ui.charts import Chart, Line, edges

FACET_VALUES = 30
SHOWN_AT_ONCE = 6


def strip(project: Project, state: ListState) -> list[Chart]:
    """How many and how many failed, and how long they took, over the list's time.

    None when the filter cannot be read: the list says so.
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
    found = [answer.by_bucket.get((at, None)) for at in range(len(bounds) - 1)]
    good = [one.runs - one.errors if one else 0 for one in found]
    bad = [one.errors if one else 0 for one in found]
    half, most = (
        [one.quantile(Measure.LATENCY, share) if one else None for one in found]
        for share in (0.5, 0.95)
    )
    whole = answer.whole
    note = f"since {answer.counted_since:%-d %b %H:%M}" if answer.counted_since else ""
    here = state.address(drop=("range", "from", "to"))
    failed = state.address(filter=filter_clauses.toggled_value(state.filter, "status", "error"))
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
        return self.values[:SHOWN_AT_ONCE]

    @property
    def rest(self) -> Sequence[FacetValue]:
        return self.values[SHOWN_AT_ONCE:]


FIELDS = {
    "status": ("Status", GroupAttribute.STATUS),
    "name": ("Name", GroupAttribute.NAME),
    "run_type": ("Type", GroupAttribute.RUN_TYPE),
}
_TITLES = {"tag": "Tags", "feedback_key": "Feedback"}
_SUGGESTED = {**{name: name for name in FIELDS}, "tags": "tag", "feedback_key": "feedback_key"}


def facets(project: Project, state: ListState) -> list[Facet]:
    """The most frequent values in the list's time; each address lets one more or less through.

    What is chosen of a field does not limit that field's own values, so that others can be added.
    """
    try:
        query = state.query(project)
    except FilterError:
        return []
    found: dict[str, list[FacetValue]] = {name: [] for name in FIELDS}
    for one in facets_of(project.workspace_id, query):
        if one["key"] in FIELDS:
            value = _of_field(state, one["key"], one["value"], one["n"])
        else:
            value = _clause(state, one["value"], one["n"], one["query"])
        found.setdefault(one["key"], []).append(value)
    for name in FIELDS:
        if filter_clauses.chosen(state.filter, name):
            found[name] = _without_own_limit(project, state, name)
    useful = {
        key: values
        for key, values in found.items()
        if values and (key == "name" or key not in FIELDS or len(values) > 1 or values[0].is_chosen)
    }
    return [Facet(_title(key), values) for key, values in useful.items()]


def values(project: Project, state: ListState, name: str) -> list[str]:
    """The most frequent values of a field, for suggestions."""
    key = _SUGGESTED.get("tags" if name == "tag" else name)
    found = (
        facets_of(project.workspace_id, state.query(project)) if key or "metadata" in name else []
    )
    if name == "metadata_key":
        keys = (one["key"] for one in found if one["key"].startswith("metadata."))
        return list(dict.fromkeys(one.removeprefix("metadata.") for one in keys))
    if name == "metadata_value":
        return [one["value"] for one in found if one["key"].startswith("metadata.")]
    return [one["value"] for one in found if one["key"] == key]


def _title(key: str) -> str:
    if key in FIELDS:
        return FIELDS[key][0]
    return _TITLES.get(key, key.removeprefix("metadata."))


def _of_field(state: ListState, name: str, value: str, count: int) -> FacetValue:
    text = filter_clauses.toggled_value(state.filter, name, value)
    is_chosen = value in filter_clauses.chosen(state.filter, name)
    return FacetValue(value, count, state.address(filter=text, view=""), is_chosen)


def _without_own_limit(project: Project, state: ListState, name: str) -> list[FacetValue]:
    text = filter_clauses.without_field(state.filter, name)
    answer = run_store.aggregate(
        project.workspace_id,
        MetricsQuery(
            query=state.saying(text).query(project),
            group_by=GroupBy(FIELDS[name][1], max_groups=FACET_VALUES),
            measures=(),
        ),
    )
    counted = {group: figures.runs for group, figures in answer.by_group.items() if group}
    counted |= {one: 0 for one in filter_clauses.chosen(state.filter, name) if one not in counted}
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [_of_field(state, name, value, count) for value, count in ordered]


def _clause(state: ListState, label: str, count: int, clause: str) -> FacetValue:
    address = state.address(filter=filter_clauses.toggled(state.filter, clause), view="")
    return FacetValue(label, count, address, filter_clauses.has(state.filter, clause))
