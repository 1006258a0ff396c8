"""Prunes the intervals that cannot contain a run of a query, by rollups.

An interval is skipped only if rows that represent all its runs exclude a match. Changed intervals,
pending runs and misplaced runs are always scanned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from apps.trace_store.filters.nodes import Comparison, Condition, Expression
from apps.trace_store.filters.query_analysis import (
    extract_root_condition,
    join_conjunction,
    required_value,
    split_conjunction,
)
from apps.trace_store.metrics import Measure
from apps.trace_store.postgres.rollups import dimensions, query_plan
from apps.trace_store.postgres.rollups.dimensions import RollupFilter
from apps.trace_store.postgres.rollups.intervals import (
    EARLIEST_TIME,
    LATEST_TIME,
    Resolution,
    find_misplaced_runs,
)
from apps.trace_store.postgres.rollups.query_plan import RollupCell
from apps.trace_store.types import RunQuery

_MEASURES = {
    "latency": Measure.LATENCY,
    "first_token_latency": Measure.FIRST_TOKEN,
    **{str(measure): measure for measure in Measure if measure.is_usage},
}
_MICROSECONDS = 1_000_000

ValueRange: TypeAlias = tuple[Decimal, Decimal]
"""The minimum and maximum of the values in an interval."""
_MAY_MATCH: dict[Comparison, Callable[[ValueRange, Decimal], bool]] = {
    Comparison.GREATER: lambda ends, value: ends[1] > value,
    Comparison.GREATER_OR_EQUAL: lambda ends, value: ends[1] >= value,
    Comparison.LESS: lambda ends, value: ends[0] < value,
    Comparison.LESS_OR_EQUAL: lambda ends, value: ends[0] <= value,
    Comparison.EQUAL: lambda ends, value: ends[0] <= value <= ends[1],
}


@dataclass(frozen=True, slots=True)
class MeasureBound:
    """A condition of the filter on one measure."""

    measure: Measure
    comparison: Comparison
    value: Decimal

    def may_be_met(self, ends: ValueRange | None) -> bool:
        """Whether a value in the range may meet the condition; without values none does."""
        return ends is not None and _MAY_MATCH[self.comparison](ends, self.value)


@dataclass(frozen=True, slots=True)
class PruningHint:
    """Rollup rows to check: an interval without a row that meets the bounds has no match."""

    rollup: RollupFilter
    bounds: Sequence[MeasureBound]

    @property
    def measures(self) -> list[Measure]:
        return list(dict.fromkeys(bound.measure for bound in self.bounds))


def pruning_hint(query: RunQuery) -> PruningHint | None:
    """Derive the rollup rows to check; None if they would exclude little."""
    if not query.project_ids or query.run_ids is not None or query.trace_id is not None:
        return None
    query = extract_root_condition(query)
    parts = [] if query.where is None else split_conjunction(query.where)
    results = [part for part in parts if dimensions.can_evaluate(part)]
    if not any(required_value(part, "name", "model") for part in results):
        # Rollups by name have nearly as many rows as there are runs.
        results = [
            part
            for part in results
            if dimensions.required_granularity(part) != dimensions.BY_NAME_AND_MODEL
        ]
    where = None if not results else join_conjunction(results)
    known = RunQuery(
        project_ids=query.project_ids,
        run_type=query.run_type,
        is_root=query.is_root,
        has_error=query.has_error,
        where=where,
    )
    rollup = dimensions.rollup_filter(known)
    if rollup is None:
        return None
    bounds = [result for part in parts if (result := _measure_bound(part, is_root=query.is_root))]
    # Errors have an index of their own.
    tells_kind = query.run_type is not None or any(map(_selects_type, results))
    return PruningHint(rollup, bounds) if bounds or tells_kind else None


def _selects_type(part: Expression) -> bool:
    result = required_value(part, "run_type", "status", "model")
    return result is not None and result != "error"


def _measure_bound(part: Expression, *, is_root: bool | None) -> MeasureBound | None:
    if not isinstance(part, Condition) or not isinstance(part.value, Decimal):
        return None
    measure = _MEASURES.get(part.field.name)
    if measure is None or part.comparison not in _MAY_MATCH:
        return None
    if measure.is_usage:
        # Rollups have no totals of runs between a root and the model calls.
        return MeasureBound(measure, part.comparison, part.value) if is_root else None
    # Rollups store negative durations as zero.
    value = part.value * _MICROSECONDS
    return MeasureBound(measure, part.comparison, value) if value > 0 else None


ProjectQuarter = tuple[datetime, UUID]
"""The start of a quarter hour, and a project."""


def candidate_quarters(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    hint: PruningHint,
    between: tuple[datetime | None, datetime | None],
    *,
    oldest_first: bool,
) -> Iterator[ProjectQuarter] | None:
    """The quarter hours that may contain a match, in list order.

    None if rollups know too little about these projects.
    """
    begin = max((between[0] or EARLIEST_TIME).astimezone(UTC), EARLIEST_TIME)
    end = max(min((between[1] or LATEST_TIME).astimezone(UTC), LATEST_TIME), begin)
    # Use whole quarter hours; the scan applies the exact bounds.
    edges = [
        Resolution.QUARTER.floor(begin),
        Resolution.QUARTER.floor(end) + Resolution.QUARTER.width,
    ]
    plan = query_plan.plan_rollups(workspace_id, project_ids, edges, hint.rollup)
    others = find_misplaced_runs(workspace_id, project_ids, placed=(edges[0], edges[1]))
    if others is None:
        return None
    unknown = {(at, project_id) for project_id, at in plan.quarters}
    unknown |= {
        (Resolution.QUARTER.floor(partition_time), project_id)
        for partition_time, project_id in others
    }
    cells = _matching_cells(workspace_id, plan.cells, hint)
    return _ordered_quarters(workspace_id, cells, hint, unknown, oldest_first=oldest_first)


def _ordered_quarters(
    workspace_id: UUID,
    cells: Sequence[RollupCell],
    hint: PruningHint,
    unknown: Collection[ProjectQuarter],
    *,
    oldest_first: bool,
) -> Iterator[ProjectQuarter]:
    """Refine coarse intervals one batch at a time, because a page is often full before the last."""
    waiting = set(unknown)
    for some, reach in _time_batches(cells, oldest_first=oldest_first):
        waiting.update(_refine(workspace_id, some, hint))
        ready = {item for item in waiting if (item[0] < reach) == oldest_first}
        waiting -= ready
        yield from sorted(ready, reverse=not oldest_first)
    yield from sorted(waiting, reverse=not oldest_first)


def _time_batches(
    cells: Sequence[RollupCell], *, oldest_first: bool
) -> Iterator[tuple[Sequence[RollupCell], datetime]]:
    """Yield growing batches of cells, each with the time up to which they are complete."""
    if oldest_first:
        cells = sorted(cells, key=lambda cell: cell.begins_at)
    else:
        cells = sorted(cells, key=lambda cell: cell.ends_at, reverse=True)
    at, size = 0, 1
    while at < len(cells):
        some = cells[at : at + size]
        if oldest_first:
            reach = max(cell.ends_at for cell in some)
        else:
            reach = min(cell.begins_at for cell in some)
        # Intervals of several projects overlap.
        end = at + len(some)
        while end < len(cells) and (
            cells[end].begins_at < reach if oldest_first else cells[end].ends_at > reach
        ):
            end += 1
        yield cells[at:end], reach
        at, size = end, 2 * size


def _refine(
    workspace_id: UUID, cells: Sequence[RollupCell], hint: PruningHint
) -> Iterator[ProjectQuarter]:
    """Yield the quarter hours within these cells that may contain a match."""
    for resolution in (Resolution.HOUR, Resolution.QUARTER):
        done = [cell for cell in cells if cell.resolution <= resolution]
        parts = [
            part
            for cell in cells
            if cell.resolution > resolution
            for part in _split_cell(cell, resolution)
        ]
        # The parts of a clean interval are clean.
        cells = [*done, *_matching_cells(workspace_id, parts, hint)]
    for cell in cells:
        yield cell.begins_at, cell.project_id


def _split_cell(cell: RollupCell, resolution: Resolution) -> Iterator[RollupCell]:
    at = cell.begins_at
    while at < cell.ends_at:
        yield replace(cell, resolution=resolution, begins_at=at)
        at += resolution.width


def _matching_cells(
    workspace_id: UUID, cells: Sequence[RollupCell], hint: PruningHint
) -> list[RollupCell]:
    result: dict[RollupCell, None] = {}
    for cell, ends in query_plan.value_ranges(workspace_id, cells, hint.rollup, hint.measures):
        if all(bound.may_be_met(ends.get(bound.measure)) for bound in hint.bounds):
            result[cell] = None
    return list(result)
