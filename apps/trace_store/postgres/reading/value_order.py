"""Reads the first runs in the order of a value: latency, tokens or cost (docs/adr/0028).

Rollups have the minimum and the maximum of each measure by interval: the intervals with the best
bounds are read first, until no other interval can contain a run of the page.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from apps.trace_store.errors import QueryTooSlow
from apps.trace_store.metrics import Measure
from apps.trace_store.postgres.reading import pages
from apps.trace_store.postgres.reading.pages import TIMEOUT_SECONDS
from apps.trace_store.postgres.reading.post_filter import PostFilter
from apps.trace_store.postgres.reading.prepared_query import (
    Condition,
    PreparedQuery,
)
from apps.trace_store.postgres.reading.pruning import ProjectQuarter, split_cell
from apps.trace_store.postgres.reading.rows import StoredRun
from apps.trace_store.postgres.reading.scan import MAX_BATCH, RunScan
from apps.trace_store.postgres.rollups import dimensions, query_plan
from apps.trace_store.postgres.rollups.dimensions import RollupFilter
from apps.trace_store.postgres.rollups.intervals import (
    EARLIEST_TIME,
    LATEST_TIME,
    Resolution,
    find_misplaced_runs,
)
from apps.trace_store.postgres.rollups.query_plan import RollupCell
from apps.trace_store.types import RunQuery, RunSort, SortField

_MAX_COLLECTED = 2_000
"""Up to this many matches of a selective filter are sorted in memory."""
_MAX_INTERVALS = 64
"""Limit of intervals that one statement reads."""
_MICROSECOND = timedelta(microseconds=1)

SortPosition = tuple[Decimal, datetime, UUID]
"""Value, partition time and id of a run: its position in the order."""

_START_SQL = "coalesce(r.start_time, r.partition_time)"


@dataclass(frozen=True, slots=True)
class SortValue:
    """The value of a sort field in SQL, of a read run, and its rollup measure."""

    sql: str
    of_run: Callable[[StoredRun], Decimal | None]
    measure: Measure


def _usage_sql(name: str) -> str:
    return f"CASE WHEN r.run_type = 'llm' THEN r.{name} ELSE coalesce(r.sum_{name}, r.{name}) END"


def _usage_value(name: str) -> Callable[[StoredRun], Decimal | None]:
    def value(stored: StoredRun) -> Decimal | None:
        row, total = stored
        amount = None if total is None or row.is_model_call else getattr(total, name)
        amount = getattr(row.usage, name) if amount is None else amount
        return None if amount is None else Decimal(amount)

    return value


def _latency(stored: StoredRun) -> Decimal | None:
    latency = stored[0].latency
    return None if latency is None else Decimal(max(latency // _MICROSECOND, 0))


VALUES = {
    SortField.LATENCY: SortValue(
        # Whole microseconds, and no negative ones, as in rollups.
        f"(CASE WHEN r.end_time IS NOT NULL THEN"
        f" greatest((date_part('epoch', r.end_time - {_START_SQL}) * 1000000)::int8, 0) END)",
        _latency,
        Measure.LATENCY,
    ),
    SortField.TOKENS: SortValue(
        f"({_usage_sql('total_tokens')})", _usage_value("total_tokens"), Measure.TOTAL_TOKENS
    ),
    SortField.COST: SortValue(
        f"({_usage_sql('total_cost')})", _usage_value("total_cost"), Measure.TOTAL_COST
    ),
}


@dataclass(slots=True)
class _Interval:
    """A rollup cell with the best position that one of its runs can have."""

    rank: tuple[Decimal, float]
    """The bound of the values and the edge of the time, negated for a descending order."""
    cell: RollupCell

    def __lt__(self, other: _Interval) -> bool:
        return self.rank < other.rank


class ValueReader:
    """Reads the first runs after a position in the order of a value."""

    def __init__(
        self, prepared: PreparedQuery, sort: RunSort, position: SortPosition | None
    ) -> None:
        self.prepared = prepared
        self.value = VALUES[sort.field]
        self.position = position
        self.descending = sort.descending
        self._scan = RunScan(prepared, None)
        self._post_filter = PostFilter(prepared.workspace_id, prepared.query, prepared.where)
        self._deadline = time.monotonic() + TIMEOUT_SECONDS

    def read(self, limit: int) -> list[StoredRun]:
        terms = None if self.prepared.where is None else self.prepared.where.terms
        if self.prepared.has_ids or terms is not None:
            runs = self._collect_all()
            if runs is not None:
                return runs[:limit]
        plan = self._plan()
        if plan is None:
            return self._read_filtered(self._read_range, limit)
        return self._read_intervals(*plan, limit)

    def _collect_all(self) -> list[StoredRun] | None:
        """Return all matches after the position in order; None if there are many."""
        runs, last = pages.collect_runs(self.prepared, self._scan, _MAX_COLLECTED + 1)
        if len(runs) > _MAX_COLLECTED or last is not None:
            return None
        return self._merge([run for run in runs if self._is_after(run)], [])

    def _plan(self) -> tuple[list[RollupCell], RollupFilter, set[ProjectQuarter]] | None:
        """Return the intervals with bounds and those without; None if bounds do not help."""
        query = self.prepared.query
        if not query.project_ids or (self.value.measure.is_usage and not query.is_root):
            # Rollups have no totals of runs between a root and the model calls.
            return None
        rollup = dimensions.rollup_filter(
            RunQuery(
                project_ids=query.project_ids,
                run_type=query.run_type,
                is_root=query.is_root,
                has_error=query.has_error,
            )
        )
        begin = max((self.prepared.since or EARLIEST_TIME).astimezone(UTC), EARLIEST_TIME)
        end = min((self.prepared.until or LATEST_TIME).astimezone(UTC), LATEST_TIME)
        edges = [
            Resolution.QUARTER.floor(begin),
            Resolution.QUARTER.floor(max(begin, end)) + Resolution.QUARTER.width,
        ]
        if rollup is None:
            return None
        projects = list(dict.fromkeys(query.project_ids))
        workspace_id = self.prepared.workspace_id
        plan = query_plan.plan_rollups(workspace_id, projects, edges, rollup)
        misplaced_runs = find_misplaced_runs(
            workspace_id, projects, partition_range=(edges[0], edges[1])
        )
        if misplaced_runs is None:
            return None
        unbounded = {(begins_at, project_id) for project_id, begins_at in plan.quarters}
        unbounded |= {
            (Resolution.QUARTER.floor(partition_time), project_id)
            for partition_time, project_id in misplaced_runs
        }
        return plan.cells, rollup, unbounded

    def _read_intervals(
        self,
        cells: Sequence[RollupCell],
        rollup: RollupFilter,
        unbounded: set[ProjectQuarter],
        limit: int,
    ) -> list[StoredRun]:
        best: list[StoredRun] = []
        read_quarters = set(unbounded)
        quarters = sorted(unbounded)
        for begin in range(0, len(quarters), _MAX_INTERVALS):
            best = self._add_quarters(best, quarters[begin : begin + _MAX_INTERVALS], limit)
        heap = list(self._bounded(cells, rollup))
        heapq.heapify(heap)
        size = 1
        while heap:
            batch: list[RollupCell] = []
            while heap and len(batch) < size and self._may_improve(heap[0], best, limit):
                batch.append(heapq.heappop(heap).cell)
            if not batch:
                break
            coarse = [cell for cell in batch if cell.resolution is not Resolution.QUARTER]
            parts = [
                part
                for cell in coarse
                for part in split_cell(cell, Resolution(cell.resolution - 1))
            ]
            for interval in self._bounded(parts, rollup):
                heapq.heappush(heap, interval)
            fine = {
                (cell.begins_at, cell.project_id)
                for cell in batch
                if cell.resolution is Resolution.QUARTER
            } - read_quarters
            read_quarters |= fine
            if fine:
                best = self._add_quarters(best, sorted(fine), limit)
            size = min(2 * size, _MAX_INTERVALS)
        return best

    def _bounded(self, cells: Sequence[RollupCell], rollup: RollupFilter) -> Iterator[_Interval]:
        """Yield the cells that may contain a run after the position."""
        bounds: dict[RollupCell, tuple[Decimal, Decimal]] = {}
        measure = self.value.measure
        for cell, ranges in query_plan.read_value_ranges(
            self.prepared.workspace_id, cells, rollup, [measure]
        ):
            if (ends := ranges.get(measure)) is not None:
                least, most = bounds.get(cell, ends)
                bounds[cell] = min(least, ends[0]), max(most, ends[1])
        for cell, (least, most) in bounds.items():
            edge = (cell.ends_at if self.descending else cell.begins_at).timestamp()
            bound = most if self.descending else least
            if self.position is not None:
                value = self.position[0]
                if (least > value) if self.descending else (most < value):
                    continue
                bound = min(bound, value) if self.descending else max(bound, value)
            sign = -1 if self.descending else 1
            yield _Interval((sign * bound, sign * edge), cell)

    def _may_improve(self, interval: _Interval, best: Sequence[StoredRun], limit: int) -> bool:
        """Whether a run of the interval may precede the last run of a full page."""
        if len(best) < limit:
            return True
        value, partition_time, _ = self._key(best[limit - 1])
        sign = -1 if self.descending else 1
        return interval.rank <= (sign * value, sign * partition_time.timestamp())

    def _add_quarters(
        self, best: Sequence[StoredRun], quarters: Sequence[ProjectQuarter], limit: int
    ) -> list[StoredRun]:
        def read(position: SortPosition | None, size: int) -> list[StoredRun]:
            return self._scan.read_quarters_by(
                quarters, self._conditions(position), self._order_by, size
            )

        return self._merge(best, self._read_filtered(read, limit))[:limit]

    def _read_range(self, position: SortPosition | None, size: int) -> list[StoredRun]:
        return self._scan.read_range_by(self._conditions(position), self._order_by, size)

    def _read_filtered(
        self, read: Callable[[SortPosition | None, int], list[StoredRun]], limit: int
    ) -> list[StoredRun]:
        """Read batches in order until `limit` runs pass the part of the filter outside of SQL."""
        results: list[StoredRun] = []
        position, size = self.position, limit
        while rows := read(position, size):
            results += self._post_filter.filter_runs(rows)
            if len(rows) < size or len(results) >= limit:
                break
            if time.monotonic() > self._deadline:
                raise QueryTooSlow
            position = self._key(rows[-1])
            size = min(2 * size, MAX_BATCH)
        return results[:limit]

    @property
    def _order_by(self) -> str:
        direction = "DESC" if self.descending else "ASC"
        return f"{self.value.sql} {direction}, r.partition_time {direction}, r.id {direction}"

    def _conditions(self, position: SortPosition | None) -> list[Condition]:
        if position is None:
            return [(f"{self.value.sql} IS NOT NULL", [])]
        side = "<" if self.descending else ">"
        key = f"({self.value.sql}::numeric, r.partition_time, r.id)"
        return [(f"{key} {side} (%s::numeric, %s, %s)", list(position))]

    def _key(self, run: StoredRun) -> SortPosition:
        value = self.value.of_run(run)
        if value is None:
            raise AssertionError("runs without a value are not read")
        return value, run[0].partition_time, run[0].id

    def _is_after(self, run: StoredRun) -> bool:
        if self.value.of_run(run) is None:
            return False
        if self.position is None:
            return True
        key = self._key(run)
        return key < self.position if self.descending else key > self.position

    def _merge(self, runs: Sequence[StoredRun], others: Sequence[StoredRun]) -> list[StoredRun]:
        return sorted([*runs, *others], key=self._key, reverse=self.descending)
