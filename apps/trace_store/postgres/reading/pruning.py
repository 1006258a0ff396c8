"""Uses rollups to skip the intervals that cannot contain a run of a query.

An interval is skipped only if its rollup rows represent all its runs and exclude a match. Changed
intervals, pending runs and misplaced runs are always scanned.
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

    def may_match(self, ends: ValueRange | None) -> bool:
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


def derive_pruning_hint(query: RunQuery) -> PruningHint | None:
    """Derive the rollup rows to check; None if they would exclude little."""
    if not query.project_ids or query.run_ids is not None or query.trace_id is not None:
        return None
    query = extract_root_condition(query)
    parts = [] if query.where is None else split_conjunction(query.where)
    evaluable = [part for part in parts if dimensions.can_evaluate(part)]
    if not any(required_value(part, "name", "model") for part in evaluable):
        # Rollups by name have nearly as many rows as there are runs.
        evaluable = [
            part
            for part in evaluable
            if dimensions.required_granularity(part) != dimensions.BY_NAME_AND_MODEL
        ]
    where = None if not evaluable else join_conjunction(evaluable)
    column_query = RunQuery(
        project_ids=query.project_ids,
        run_type=query.run_type,
        is_root=query.is_root,
        has_error=query.has_error,
        where=where,
    )
    rollup = dimensions.rollup_filter(column_query)
    if rollup is None:
        return None
    bounds = [bound for part in parts if (bound := _measure_bound(part, is_root=query.is_root))]
    selects_type = query.run_type is not None or any(map(_selects_type, evaluable))
    return PruningHint(rollup, bounds) if bounds or selects_type else None


def _selects_type(part: Expression) -> bool:
    value = required_value(part, "run_type", "status", "model")
    # Runs with an error text have an index of their own.
    return value is not None and value not in {"error", "interrupted", "cancelled"}


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


def find_candidate_quarters(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    hint: PruningHint,
    between: tuple[datetime | None, datetime | None],
    *,
    oldest_first: bool,
) -> Iterator[ProjectQuarter] | None:
    """The quarter hours that may contain a match, in list order.

    None if too many runs of these projects are outside the rollups.
    """
    begin = max((between[0] or EARLIEST_TIME).astimezone(UTC), EARLIEST_TIME)
    end = max(min((between[1] or LATEST_TIME).astimezone(UTC), LATEST_TIME), begin)
    # Use whole quarter hours; the scan applies the exact bounds.
    edges = [
        Resolution.QUARTER.floor(begin),
        Resolution.QUARTER.floor(end) + Resolution.QUARTER.width,
    ]
    plan = query_plan.plan_rollups(workspace_id, project_ids, edges, hint.rollup)
    misplaced_runs = find_misplaced_runs(
        workspace_id, project_ids, partition_range=(edges[0], edges[1])
    )
    if misplaced_runs is None:
        return None
    uncovered = {(begin, project_id) for project_id, begin in plan.quarters}
    uncovered |= {
        (Resolution.QUARTER.floor(partition_time), project_id)
        for partition_time, project_id in misplaced_runs
    }
    cells = _matching_cells(workspace_id, plan.cells, hint)
    return _ordered_quarters(workspace_id, cells, hint, uncovered, oldest_first=oldest_first)


def _ordered_quarters(
    workspace_id: UUID,
    cells: Sequence[RollupCell],
    hint: PruningHint,
    uncovered: Collection[ProjectQuarter],
    *,
    oldest_first: bool,
) -> Iterator[ProjectQuarter]:
    """Refine coarse intervals batch by batch: a page is often full before the last batch."""
    candidates = set(uncovered)
    for batch, complete_until in _time_batches(cells, oldest_first=oldest_first):
        candidates.update(_refine(workspace_id, batch, hint))
        ready = {item for item in candidates if (item[0] < complete_until) == oldest_first}
        candidates -= ready
        yield from sorted(ready, reverse=not oldest_first)
    yield from sorted(candidates, reverse=not oldest_first)


def _time_batches(
    cells: Sequence[RollupCell], *, oldest_first: bool
) -> Iterator[tuple[Sequence[RollupCell], datetime]]:
    """Yield growing batches of cells, each with the time up to which they are complete."""
    if oldest_first:
        cells = sorted(cells, key=lambda cell: cell.begins_at)
    else:
        cells = sorted(cells, key=lambda cell: cell.ends_at, reverse=True)
    begin, size = 0, 1
    while begin < len(cells):
        batch = cells[begin : begin + size]
        if oldest_first:
            complete_until = max(cell.ends_at for cell in batch)
        else:
            complete_until = min(cell.begins_at for cell in batch)
        # Intervals of several projects overlap.
        end = begin + len(batch)
        while end < len(cells) and (
            cells[end].begins_at < complete_until
            if oldest_first
            else cells[end].ends_at > complete_until
        ):
            end += 1
        yield cells[begin:end], complete_until
        begin, size = end, 2 * size


def _refine(
    workspace_id: UUID, cells: Sequence[RollupCell], hint: PruningHint
) -> Iterator[ProjectQuarter]:
    """Yield the quarter hours within these cells that may contain a match."""
    for resolution in (Resolution.HOUR, Resolution.QUARTER):
        fine_cells = [cell for cell in cells if cell.resolution <= resolution]
        parts = [
            part
            for cell in cells
            if cell.resolution > resolution
            for part in split_cell(cell, resolution)
        ]
        # The parts of a clean interval are clean.
        cells = [*fine_cells, *_matching_cells(workspace_id, parts, hint)]
    for cell in cells:
        yield cell.begins_at, cell.project_id


def split_cell(cell: RollupCell, resolution: Resolution) -> Iterator[RollupCell]:
    begin = cell.begins_at
    while begin < cell.ends_at:
        yield replace(cell, resolution=resolution, begins_at=begin)
        begin += resolution.width


def _matching_cells(
    workspace_id: UUID, cells: Sequence[RollupCell], hint: PruningHint
) -> list[RollupCell]:
    result: dict[RollupCell, None] = {}
    for cell, ends in query_plan.read_value_ranges(workspace_id, cells, hint.rollup, hint.measures):
        if all(bound.may_match(ends.get(bound.measure)) for bound in hint.bounds):
            result[cell] = None
    return list(result)
