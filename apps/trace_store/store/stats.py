"""Figures of any set of runs: from rollups where they can tell, else from the runs.

Both ways give the same counts, sums, ends and averages to the digit; quantiles of rollups are
within one per cent of a value that a run had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from apps.trace_store.store import counting, rollup_dimensions, rollup_plan
from apps.trace_store.store.counting import Condition, Counting, Group
from apps.trace_store.store.metrics import ALL_MEASURES, Figures, Measure, summed
from apps.trace_store.store.rollup_dimensions import Kind, Rolled
from apps.trace_store.store.rollup_intervals import EARLIEST, LATEST
from apps.trace_store.store.selecting import conditions_of, selection
from apps.trace_store.store.types import RunQuery

if TYPE_CHECKING:
    from apps.trace_store.store.protocol import RunStore

_TICK = timedelta(microseconds=1)


class Attribute(StrEnum):
    """What runs are grouped by."""

    NAME = "name"
    RUN_TYPE = "run_type"
    STATUS = "status"
    MODEL = "model"
    PROJECT = "project"
    TAG = "tag"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class GroupBy:
    attribute: Attribute
    path: str = ""
    """The key of the metadata."""
    max_groups: int = 5
    """The groups with the most runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the runs of a query."""

    query: RunQuery
    edges: Sequence[datetime] | None = None
    """Bounds of buckets of time; each begins with its own edge and ends before the next."""
    group_by: GroupBy | None = None
    depth: int | None = None
    """0 for roots, 1 for the runs below one."""
    measures: Sequence[Measure] = ALL_MEASURES
    quantiles: Sequence[float] = (0.5, 0.99)
    details: bool = False


@dataclass(slots=True)
class Answer:
    """Figures by bucket and group; buckets and groups without a run are not there."""

    by_bucket: Mapping[tuple[int, str | None], Figures]
    counted_since: datetime | None = None
    """Set when there were too many runs to look at: only those placed after it were counted."""
    by_group: dict[str | None, Figures] = field(init=False)

    def __post_init__(self) -> None:
        self.by_group = {}
        for (_, group), figures in self.by_bucket.items():
            if group in self.by_group:
                self.by_group[group].add(figures)
            else:
                self.by_group[group] = summed([figures])

    @property
    def whole(self) -> Figures:
        return self.by_group.get(None) or Figures()


def answer(store: RunStore, workspace_id: UUID, question: Question) -> Answer:
    """The figures of the runs that the query means, whatever was settled yet."""
    question = replace(
        question, query=rollup_dimensions.scoped(rollup_dimensions.bounded(question.query))
    )
    rolled = rollup_dimensions.rolled(question.query, depth=question.depth)
    group = question.group_by
    if rolled is not None and (group is None or group.attribute in _OF_KIND):
        found = _from_rollups(workspace_id, question, rolled)
    else:
        found = _from_runs(store, workspace_id, question)
    if group is not None and len(found.by_group) > group.max_groups:
        return _largest(found, group.max_groups)
    return found


def _largest(found: Answer, how_many: int) -> Answer:
    def order(group: str | None) -> tuple[int, str]:
        return -found.by_group[group].runs, group or ""

    kept = set(sorted(found.by_group, key=order)[:how_many])
    return Answer(
        {key: figures for key, figures in found.by_bucket.items() if key[1] in kept},
        found.counted_since,
    )


_OF_KIND: dict[Attribute, Callable[[Kind], str]] = {
    Attribute.NAME: lambda kind: kind.name,
    Attribute.RUN_TYPE: lambda kind: kind.run_type,
    Attribute.STATUS: lambda kind: kind.status,
    Attribute.MODEL: lambda kind: kind.model,
    Attribute.PROJECT: lambda _: "",
}


def _from_rollups(workspace_id: UUID, question: Question, rolled: Rolled) -> Answer:
    query, group = question.query, question.group_by
    project_ids = list(dict.fromkeys(query.project_ids or ()))
    edges = _edges(question)
    rolled = rolled.by(group.attribute if group else None)
    if not project_ids or edges[0] >= edges[-1]:
        return Answer({})
    plan = rollup_plan.plan(workspace_id, project_ids, edges, rolled)
    found: dict[tuple[int, str | None], Figures] = defaultdict(Figures)
    for cell, kind, figures in rollup_plan.rows(
        workspace_id, plan.cells, rolled, question.measures, details=question.details
    ):
        name: str | None = None
        if group is not None:
            of_project = group.attribute is Attribute.PROJECT
            name = str(cell.project_id) if of_project else _OF_KIND[group.attribute](kind)
        found[cell.bucket, name].add(figures)
    # Alone, runs tell their quantiles themselves; beside rows, by histograms.
    exact = question.quantiles if not plan.cells else None
    others = replace(query, project_ids=None, started_from=None, started_until=None)
    conditions = [*conditions_of(workspace_id, others), *_at_depth(question.depth)]
    parts = [[*part, *conditions] for part in plan.parts(workspace_id, project_ids)]
    _count_into(found, workspace_id, question, parts, exact, plan.since)
    return _told(found, group)


def _from_runs(store: RunStore, workspace_id: UUID, question: Question) -> Answer:
    query, edges = question.query, question.edges
    if edges is not None:
        # The edges bound the query too, so that only their time is looked at.
        begin = edges[0] if query.started_from is None else max(edges[0], query.started_from)
        last = edges[-1] - _TICK
        end = last if query.started_until is None else min(last, query.started_until)
        query = replace(query, started_from=begin, started_until=end)
    chosen = selection(store, workspace_id, query)
    found: dict[tuple[int, str | None], Figures] = defaultdict(Figures)
    first = chosen.counted_since or query.started_from
    since = None if first is None else max(first, EARLIEST) - counting.ABOVE
    parts = [[*chosen.conditions, *_at_depth(question.depth)]]
    _count_into(found, workspace_id, question, parts, question.quantiles, since)
    return _told(found, question.group_by, chosen.counted_since)


def _count_into(  # noqa: PLR0917  (private, called twice)
    found: dict[tuple[int, str | None], Figures],
    workspace_id: UUID,
    question: Question,
    parts: Sequence[Sequence[Condition]],
    quantiles: Sequence[float] | None,
    since: datetime | None,
) -> None:
    groups: list[Group] = []
    if question.edges is not None:
        bucket = f"width_bucket({counting.STARTED}, %s::timestamptz[]) - 1"
        groups.append(Group(bucket, [list(question.edges)]))
    if question.group_by is not None:
        groups.append(_group(question.group_by))
    asked = Counting(
        workspace_id=workspace_id,
        parts=parts,
        groups=groups,
        measures=question.measures,
        of_traces=question.query.is_root is True,
        quantiles=quantiles,
        details=question.details,
        since=since,
    )
    for values, figures in counting.count(asked):
        at = values[0] if question.edges is not None else 0
        name = values[-1] if question.group_by is not None else None
        found[at, name].add(figures)


def _told(
    found: Mapping[tuple[int, str | None], Figures],
    group: GroupBy | None,
    cutoff: datetime | None = None,
) -> Answer:
    if group is not None and group.attribute in {Attribute.MODEL, Attribute.NAME}:
        found = {key: figures for key, figures in found.items() if key[1]}
    return Answer({key: figures for key, figures in found.items() if figures.runs}, cutoff)


def _group(group: GroupBy) -> Group:
    match group.attribute:
        case Attribute.NAME:
            return Group(counting.NAME)
        case Attribute.RUN_TYPE:
            return Group(counting.TYPE)
        case Attribute.STATUS:
            return Group(counting.STATUS)
        case Attribute.MODEL:
            return Group("coalesce(r.model, '')")
        case Attribute.PROJECT:
            return Group("r.project_id::text")
        case Attribute.TAG:
            join = "CROSS JOIN LATERAL (SELECT DISTINCT unnest(r.tags) AS tag) AS tags"
            return Group("tags.tag", join=join)
    join = "CROSS JOIN LATERAL (SELECT r.metadata ->> %s AS value) AS meta"
    return Group("meta.value", join=join, join_values=[group.path])


def _at_depth(depth: int | None) -> list[Condition]:
    return [] if depth is None else [(f"{counting.SCOPE} = %s", [depth])]


def _edges(question: Question) -> Sequence[datetime]:
    """The question's own, within the bounds of its query."""
    query = question.query
    begin = max(_utc(query.started_from) or EARLIEST, EARLIEST)
    end = min(_utc(query.started_until) or LATEST, LATEST) + _TICK
    if question.edges is None:
        return [begin, end]
    return [min(max(edge, begin), max(begin, end)) for edge in question.edges]


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
