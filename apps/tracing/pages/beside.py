"""What stands beside a list of runs: its strip of charts, and the values that narrow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apps.tracing.errors import FilterError
from apps.tracing.models import Project
from apps.tracing.pages import clauses
from apps.tracing.pages.charts import Chart, Line, edges
from apps.tracing.pages.listing import ListState
from apps.tracing.services import feedback_stats
from apps.tracing.store import RunQuery, runs
from apps.tracing.store.figures import Measure
from apps.tracing.store.stats import Attribute, GroupBy, Question

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
    answer = runs.figures(
        project.workspace_id,
        Question(query=query, edges=bounds, measures=(Measure.LATENCY,), quantiles=(0.5, 0.95)),
    )
    found = [answer.by_bucket.get((at, None)) for at in range(len(bounds) - 1)]
    good = [one.runs - one.errors if one else 0 for one in found]
    bad = [one.errors if one else 0 for one in found]
    half, most = (
        [one.quantile(Measure.LATENCY, share) if one else None for one in found]
        for share in (0.5, 0.95)
    )
    whole = answer.whole
    note = f"counted since {answer.counted_since:%-d %b %H:%M}" if answer.counted_since else ""
    here = state.address(drop=("range", "from", "to"))
    failed = state.address(filter=clauses.toggled_value(state.filter, "status", "error"))
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
    count: int | None
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
    "Status": (Attribute.STATUS, "status"),
    "Name": (Attribute.NAME, "name"),
    "Type": (Attribute.RUN_TYPE, "run_type"),
    "Model": (Attribute.MODEL, "model"),
}


def facets(project: Project, state: ListState) -> list[Facet]:
    """The most frequent values in the list's time; each address lets one more or less through.

    A field's counts leave out what is chosen of that field, so that others can be added.
    """
    found = [
        _of_field(project, state, title, attribute, name)
        for title, (attribute, name) in FIELDS.items()
        if not (name == "run_type" and state.show == "llm")
        and not (name == "model" and not state.show)
    ]
    found.append(_of_tags(project, state))
    found.append(_of_feedback(project, state))
    return [facet for facet in found if facet.values]


def values(project: Project, state: ListState, name: str) -> list[str]:
    """The most frequent values of a field, for suggestions."""
    attributes = {field: attribute for attribute, field in FIELDS.values()}
    if name == "feedback_key":
        return list(_feedback_keys(project, state))
    if name in {"tags", "tag"}:
        counted = _counted(project, state.query(project), Attribute.TAG)
    elif name in attributes:
        counted = _counted(project, state.query(project), attributes[name])
    else:
        return []
    return [value for value, _ in counted]


def _of_field(
    project: Project, state: ListState, title: str, attribute: Attribute, name: str
) -> Facet:
    chosen = clauses.chosen(state.filter, name)
    text = clauses.without_field(state.filter, name)
    try:
        query = state.saying(text).query(project)
    except FilterError:
        return Facet(title, [])
    counted = dict(_counted(project, query, attribute))
    counted |= {value: 0 for value in chosen if value not in counted}
    if len(counted) < 2 and not chosen and name != "name":
        return Facet(title, [])
    return Facet(
        title,
        [
            FacetValue(
                value,
                count,
                state.address(filter=clauses.toggled_value(state.filter, name, value), view=""),
                value in chosen,
            )
            for value, count in counted.items()
        ],
    )


def _of_tags(project: Project, state: ListState) -> Facet:
    try:
        query = state.query(project)
    except FilterError:
        return Facet("Tags", [])
    counted = _counted(project, query, Attribute.TAG)
    return Facet(
        "Tags",
        [
            _clause(state, value, count, f"has(tags, {clauses.quoted(value)})")
            for value, count in counted
        ],
    )


def _of_feedback(project: Project, state: ListState) -> Facet:
    said = _feedback_keys(project, state)
    return Facet(
        "Feedback",
        [
            _clause(state, key, count, f"eq(feedback_key, {clauses.quoted(key)})")
            for key, count in said.items()
        ],
    )


def _feedback_keys(project: Project, state: ListState) -> dict[str, int]:
    """How often each key was said of the runs of the list's time."""
    found = feedback_stats.of_runs_in_projects(
        project.workspace_id,
        [project.pk],
        started_from=state.period.start,
        started_until=state.period.end,
        roots_only=not state.show,
    ).get(project.pk, {})
    counted = {
        key: int(stats.get("n") or 0) or sum((stats.get("values") or {}).values())
        for key, stats in found.items()
    }
    return dict(sorted(counted.items(), key=lambda item: -item[1])[:FACET_VALUES])


def _clause(state: ListState, label: str, count: int | None, clause: str) -> FacetValue:
    address = state.address(filter=clauses.toggled(state.filter, clause), view="")
    return FacetValue(label, count, address, clauses.has(state.filter, clause))


def _counted(project: Project, query: RunQuery, attribute: Attribute) -> list[tuple[str, int]]:
    answer = runs.figures(
        project.workspace_id,
        Question(
            query=query,
            group_by=GroupBy(attribute, max_groups=FACET_VALUES),
            measures=(),
            quantiles=(),
        ),
    )
    counted = [(group, figures.runs) for group, figures in answer.by_group.items() if group]
    return sorted(counted, key=lambda item: (-item[1], item[0]))
