"""Plans which rollup intervals cover a time range and which runs must be counted."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core.connections import raw_cursor, sql
from apps.trace_store.metrics import COUNT_NAMES, Measure, RunMetrics, decode_value_range
from apps.trace_store.postgres.rollups import dirty_intervals
from apps.trace_store.postgres.rollups.dimensions import (
    BY_NAME_AND_MODEL,
    RollupDimensions,
    RollupFilter,
)
from apps.trace_store.postgres.rollups.intervals import (
    IS_IN_PLACE_SQL,
    IS_MISPLACED_SQL,
    Resolution,
)
from apps.trace_store.postgres.statistics import aggregate_runs
from apps.trace_store.postgres.statistics.aggregate_runs import Condition

MAX_CLOCK_SKEW = timedelta(days=1)
_MAX_RANGES = 8


@dataclass(frozen=True, slots=True)
class RollupCell:
    """A clean interval, and the time bucket that contains it."""

    project_id: UUID
    resolution: Resolution
    begins_at: datetime
    bucket: int

    @property
    def ends_at(self) -> datetime:
        return self.begins_at + self.resolution.width


@dataclass(slots=True)
class RollupPlan:
    """Cells to merge, and quarter hours whose runs must be counted."""

    edges: Sequence[datetime]
    cells: list[RollupCell] = field(default_factory=list)
    quarters: set[tuple[UUID, datetime]] = field(default_factory=set)

    def find_parts(self, workspace_id: UUID, project_ids: Sequence[UUID]) -> list[list[Condition]]:
        """The runs to count, as disjoint sets."""
        in_range: Condition = (
            f"{aggregate_runs.START_TIME_SQL} >= %s AND {aggregate_runs.START_TIME_SQL} < %s",
            [self.edges[0], self.edges[-1]],
        )
        parts = [[*where, (IS_IN_PLACE_SQL, []), in_range] for where in self._ranges()]
        return parts + _misplaced_parts(workspace_id, project_ids, self.edges[0], self.edges[-1])

    def _ranges(self) -> list[list[Condition]]:
        ranges = list(merge_quarters(self.quarters))
        if len(ranges) <= _MAX_RANGES:
            return [
                [
                    ("r.project_id = %s", [project_id]),
                    ("r.partition_time >= %s AND r.partition_time < %s", [begin, end]),
                ]
                for project_id, begin, end in ranges
            ]
        projects = [project_id for project_id, _, _ in ranges]
        begins = [begin for _, begin, _ in ranges]
        ends = [end for _, _, end in ranges]
        in_any_range = (
            "EXISTS (SELECT FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[])"
            " AS q(project_id, begins_at, ends_at) WHERE q.project_id = r.project_id"
            " AND r.partition_time >= q.begins_at AND r.partition_time < q.ends_at)"
        )
        return [
            [
                ("r.project_id = ANY(%s)", [list(set(projects))]),
                (
                    "r.partition_time >= %s AND r.partition_time < %s",
                    [min(begins), max(ends)],
                ),
                (in_any_range, [projects, begins, ends]),
            ]
        ]

    @property
    def since(self) -> datetime:
        """A lower bound of the partition times that the runs to count depend on."""
        return (
            min((begin for _, begin in self.quarters), default=self.edges[0])
            - aggregate_runs.ANCESTOR_WINDOW
        )


def _misplaced_parts(
    workspace_id: UUID, project_ids: Sequence[UUID], first: datetime, last: datetime
) -> list[list[Condition]]:
    """Select misplaced runs by id, because the planner would overestimate a condition."""
    # Ordered by the key of the partial index per project, and without sorts, so that the planner
    # uses that index: it overestimates the condition and would rather read a project's days.
    statement = (
        "SELECT a.id, a.partition_time FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
        " (SELECT r.id, r.partition_time FROM trace_store_run r WHERE r.workspace_id = %s"
        f" AND r.project_id = p.id AND {IS_MISPLACED_SQL} AND r.start_time >= %s AND"
        " r.start_time < %s"
        " AND r.partition_time >= %s AND r.partition_time < %s ORDER BY r.start_time OFFSET 0) a"
    )
    values = [
        list(project_ids),
        workspace_id,
        first,
        last,
        first - MAX_CLOCK_SKEW,
        last + MAX_CLOCK_SKEW,
    ]
    with transaction.atomic(savepoint=False), raw_cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute(sql(statement), values, binary=True)
        rows = cursor.fetchall()
        cursor.execute("SET LOCAL enable_sort = DEFAULT")
    if not rows:
        return []
    times = [partition_time for _, partition_time in rows]
    return [
        [
            ("r.project_id = ANY(%s)", [list(project_ids)]),
            ("r.id = ANY(%s)", [[run_id for run_id, _ in rows]]),
            ("r.partition_time BETWEEN %s AND %s", [min(times), max(times)]),
            (f"CASE WHEN {IS_MISPLACED_SQL} THEN true ELSE false END", []),
            ("r.start_time >= %s AND r.start_time < %s", [first, last]),
        ]
    ]


def plan_rollups(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    edges: Sequence[datetime],
    rollup_filter: RollupFilter,
) -> RollupPlan:
    """Plan the time range from the first edge to before the last, bucket by bucket.

    Pending runs are read before clean intervals, because a run that is processed in between has
    marked its interval as dirty by then.
    """
    plan = RollupPlan(edges)
    projects = set(project_ids)
    pending = {
        item for item in dirty_intervals.pending_quarters(workspace_id) if item[0] in projects
    }
    open_intervals: Collection[tuple[UUID, datetime]] | None = None
    known_intervals: set[tuple[UUID, datetime]] = set()
    for resolution in reversed(Resolution):
        pending_intervals = {(project_id, resolution.floor(begin)) for project_id, begin in pending}
        unusable: list[tuple[UUID, datetime]] = []
        for row in _interval_states(workspace_id, project_ids, resolution, edges, open_intervals):
            project_id, begins_at, is_clean, has_names = row
            ends_at = begins_at + resolution.width
            if ends_at <= edges[0] or begins_at >= edges[-1]:
                continue
            interval = (project_id, begins_at)
            if resolution is Resolution.QUARTER:
                known_intervals.add(interval)
            bucket = _bucket(edges, begins_at, ends_at)
            has_granularity = has_names or rollup_filter.granularity != BY_NAME_AND_MODEL
            if (
                is_clean
                and has_granularity
                and bucket is not None
                and interval not in pending_intervals
            ):
                plan.cells.append(RollupCell(project_id, resolution, begins_at, bucket))
            else:
                unusable.append(interval)
        open_intervals = unusable
    plan.quarters.update(open_intervals or ())
    first = Resolution.QUARTER.floor(edges[0])
    plan.quarters.update(item for item in pending - known_intervals if first <= item[1] < edges[-1])
    return plan


def _interval_states(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    resolution: Resolution,
    edges: Sequence[datetime],
    inside: Collection[tuple[UUID, datetime]] | None,
) -> list[tuple[UUID, datetime, bool, bool]]:
    """Read the state of the intervals, or only of those inside the given coarser intervals."""
    columns = "s.project_id, s.begins_at, s.change_count = s.built_count, s.has_names"
    if inside is None:
        source = "trace_store_rollup_interval s WHERE s.project_id = ANY(%s)"
        values: list[Any] = [list(project_ids)]
    elif inside:
        coarser = Resolution(resolution + 1)
        source = (
            "unnest(%s::uuid[], %s::timestamptz[]) AS w(project_id, begins_at)"
            " JOIN trace_store_rollup_interval s ON s.project_id = w.project_id"
            " AND s.begins_at >= w.begins_at AND s.begins_at < w.begins_at + %s WHERE true"
        )
        values = [[item[0] for item in inside], [item[1] for item in inside], coarser.width]
    else:
        return []
    statement = (
        f"SELECT {columns} FROM {source} AND s.workspace_id = %s AND s.resolution = %s"
        " AND s.begins_at >= %s AND s.begins_at < %s"
    )
    values += [workspace_id, int(resolution), edges[0] - resolution.width, edges[-1]]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        return cursor.fetchall()


def _bucket(edges: Sequence[datetime], begin: datetime, end: datetime) -> int | None:
    """The bucket that contains the whole interval."""
    index = bisect_right(edges, begin) - 1
    return index if 0 <= index < len(edges) - 1 and end <= edges[index + 1] else None


def merge_quarters(
    quarters: Iterable[tuple[UUID, datetime]],
) -> Iterator[tuple[UUID, datetime, datetime]]:
    """Merge adjacent quarter hours to ranges."""
    width = Resolution.QUARTER.width
    current: tuple[UUID, datetime, datetime] | None = None
    for project_id, begin in sorted(quarters):
        if current is not None and current[0] == project_id and current[2] == begin:
            current = (project_id, current[1], begin + width)
            continue
        if current is not None:
            yield current
        current = (project_id, begin, begin + width)
    if current is not None:
        yield current


def read_value_ranges(
    workspace_id: UUID,
    cells: Sequence[RollupCell],
    rollup_filter: RollupFilter,
    measures: Sequence[Measure],
) -> Iterator[tuple[RollupCell, Mapping[Measure, tuple[Decimal, Decimal]]]]:
    """Yield the cell of each selected row with the value range of each measure."""
    columns = [f"t.{measure}" for measure in measures]
    for cell, _, row in _select_rows(workspace_id, cells, rollup_filter, columns):
        yield (
            cell,
            {
                measure: decode_value_range(value)
                for measure, value in zip(measures, row, strict=True)
                if value is not None
            },
        )


def read_rows(
    workspace_id: UUID,
    cells: Sequence[RollupCell],
    rollup_filter: RollupFilter,
    measures: Sequence[Measure],
    *,
    details: bool,
) -> Iterator[tuple[RollupCell, RollupDimensions, RunMetrics]]:
    """Yield the selected rows of the cells."""
    columns = [
        *(f"t.{name}" for name in COUNT_NAMES),
        *(f"t.{measure}" for measure in measures),
        *(["t.details::text"] if details else []),
    ]
    for cell, dimensions, row in _select_rows(workspace_id, cells, rollup_filter, columns):
        yield cell, dimensions, aggregate_runs.metrics_from_row(row, measures)


def _select_rows(
    workspace_id: UUID,
    cells: Sequence[RollupCell],
    rollup_filter: RollupFilter,
    columns: Sequence[str],
) -> Iterator[tuple[RollupCell, RollupDimensions, Sequence[Any]]]:
    if not cells or not rollup_filter.scopes:
        return
    statement = (
        "SELECT c.number, t.granularity, t.scope, t.run_type, t.status, t.name, t.model"
        f"{''.join(f', {column}' for column in columns)}"
        " FROM unnest(%s::uuid[], %s::int2[], %s::timestamptz[]) WITH ORDINALITY"
        " AS c(project_id, resolution, begins_at, number)"
        " JOIN trace_store_rollup t ON t.workspace_id = %s AND t.project_id = c.project_id"
        " AND t.resolution = c.resolution AND t.begins_at = c.begins_at"
        " WHERE t.granularity = %s AND t.scope = ANY(%s)"
        + "".join(f" AND t.{column} = %s" for column, _ in rollup_filter.equations)
    )
    values: list[Any] = [
        [cell.project_id for cell in cells],
        [int(cell.resolution) for cell in cells],
        [cell.begins_at for cell in cells],
        workspace_id,
        rollup_filter.granularity,
        list(rollup_filter.scopes),
        *(value for _, value in rollup_filter.equations),
    ]
    matches: dict[RollupDimensions, bool] = {}
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        for row in cursor:
            dimensions = RollupDimensions(*row[1:7])
            if dimensions not in matches:
                matches[dimensions] = rollup_filter.matches(dimensions)
            if matches[dimensions]:
                yield cells[row[0] - 1], dimensions, row[7:]
