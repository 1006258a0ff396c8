"""Scans runs in list order, after a position and within windows of time."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.trace_store.postgres.reading.prepared_query import Condition, PreparedQuery, latest
from apps.trace_store.postgres.reading.pruning import (
    ProjectQuarter,
    PruningHint,
    find_candidate_quarters,
)
from apps.trace_store.postgres.reading.rows import COLUMNS, StoredRun, select_runs
from apps.trace_store.postgres.rollups.query_plan import merge_quarters
from apps.trace_store.types import RunKey

SortKey = tuple[datetime, UUID]
"""The position of a run in list order."""
Window = tuple[datetime | None, datetime | None]
"""A half-open range of partition times."""

PROBED_RUNS = 2000
"""The number of first runs that are read before the term index is used."""
FIRST_WINDOW = timedelta(days=3)
MAX_BATCH = 2000
_FUTURE_MARGIN = timedelta(days=2)


class OrderedQuery:
    """A prepared query in list order, after `position` if given."""

    def __init__(self, query: PreparedQuery, position: SortKey | None) -> None:
        self.prepared = query
        self.position = position
        self.oldest_first = query.query.oldest_first
        self.direction = "ASC" if self.oldest_first else "DESC"

    def order_by(self, table: str) -> str:
        return f"{table}.partition_time {self.direction}, {table}.id {self.direction}"

    def split_windows(self, widest: timedelta, position: SortKey | None) -> Iterator[Window]:
        """Yield windows in order, each planned for its own days: the newest few days first."""
        since, end = self.prepared.since, self.range_end(position)
        if self.oldest_first or self.prepared.has_ids or end is None:
            yield since, end
            return
        # The first window reaches into the future, where few runs are, so it is wider.
        width = FIRST_WINDOW if position is None else timedelta(days=1)
        while width <= widest and (since is None or end - width > since):
            yield end - width, end
            end, width = end - width, 2 * width
        yield since, end

    def range_end(self, position: SortKey | None) -> datetime | None:
        """The exclusive upper bound of partition times; None if it is open."""
        if self.oldest_first or self.prepared.has_ids:
            return (
                None if self.prepared.until is None else self.prepared.until + timedelta.resolution
            )
        end = datetime.now(UTC) + _FUTURE_MARGIN
        if self.prepared.until is not None:
            end = min(end, self.prepared.until + timedelta.resolution)
        if position is not None:
            end = min(end, position[0] + timedelta.resolution)
        return end

    def range_conditions(
        self, window: Window, position: SortKey | None, table: str = "r"
    ) -> list[Condition]:
        conditions = window_conditions(window, table)
        if position is not None:
            conditions.append(self.compare_with_position(position, table, is_after=True))
        return conditions

    def compare_with_position(self, position: SortKey, table: str, *, is_after: bool) -> Condition:
        """The condition of runs after the position, or of those at and before it."""
        side = ">" if self.oldest_first == is_after else "<"
        # The second condition is redundant, but partitions are pruned by it.
        comparison = (
            f"({table}.partition_time, {table}.id) {side}{'' if is_after else '='} (%s, %s)"
        )
        return f"{comparison} AND {table}.partition_time {side}= %s", [*position, position[0]]

    def project_condition(self, table: str) -> Condition:
        projects = list(self.prepared.query.project_ids or ())
        # Only an equality lets an index provide the order.
        if len(projects) == 1:
            return f"{table}.project_id = %s", projects
        return f"{table}.project_id = ANY(%s)", [projects]

    def is_after(self, position: SortKey) -> bool:
        if self.position is None:
            return True
        return position > self.position if self.oldest_first else position < self.position


def window_conditions(window: Window, table: str) -> list[Condition]:
    begin, end = window
    conditions: list[Condition] = []
    if begin is not None:
        conditions.append((f"{table}.partition_time >= %s", [begin]))
    if end is not None:
        conditions.append((f"{table}.partition_time < %s", [end]))
    return conditions


def sort_key(row: StoredRun) -> SortKey:
    return row[0].partition_time, row[0].id


def run_key(row: StoredRun) -> RunKey:
    return row[0].id, row[0].project_id, row[0].partition_time


def conjunction_sql(conditions: Sequence[Condition]) -> str:
    return " AND ".join(f"({text})" for text, _ in conditions) or "true"


def parameters(conditions: Sequence[Condition]) -> list[Any]:
    return [value for _, values in conditions for value in values]


_MIN_BATCH = 100
_MAX_QUARTERS_PER_BATCH = 64


class RunScan(OrderedQuery):
    """Reads the runs that meet the SQL conditions, after a position if given."""

    def scan_all(self, limit: int) -> Iterator[Sequence[StoredRun]]:
        """Yield batches of at least `limit` runs in order."""
        size = limit
        for window in self.split_windows(FIRST_WINDOW, self.position):
            position = self.position
            while rows := self._read_window(window, position, size):
                yield rows
                if len(rows) < size:
                    break
                position = sort_key(rows[-1])
                size = min(max(2 * size, _MIN_BATCH), MAX_BATCH)

    def probe(self, limit: int) -> Sequence[StoredRun]:
        """Return up to `limit` matches among the first `PROBED_RUNS` runs.

        Only for one project, because the index of one project provides the order.
        """
        window = (self.prepared.since, self.range_end(self.position))
        conditions = self._position_conditions(window, self.position)
        return select_runs(
            f"SELECT {COLUMNS} FROM (SELECT r.* FROM trace_store_run r WHERE"
            f" {conjunction_sql(conditions)}"
            f" ORDER BY {self.order_by('r')} LIMIT {PROBED_RUNS}) r"
            f" WHERE {conjunction_sql(self.prepared.conditions)}"
            f" ORDER BY {self.order_by('r')} LIMIT {limit}",
            [*parameters(conditions), *parameters(self.prepared.conditions)],
        )

    def find_candidate_quarters(self, hint: PruningHint) -> Iterator[ProjectQuarter] | None:
        """The quarter hours that may contain matches according to rollups."""
        projects = list(dict.fromkeys(self.prepared.query.project_ids or ()))
        since = self.prepared.since
        if self.position is not None and self.oldest_first:
            since = latest(since, self.position[0])
        return find_candidate_quarters(
            self.prepared.workspace_id,
            projects,
            hint,
            (since, self.range_end(self.position)),
            oldest_first=self.oldest_first,
        )

    def scan_quarters(
        self, quarters: Iterable[ProjectQuarter], limit: int
    ) -> Iterator[Sequence[StoredRun]]:
        """Scan only these quarter hours, which are in order."""
        for batch in _growing_batches(quarters):
            position = self.position
            while rows := self._read_quarters(batch, position, limit):
                yield rows
                if len(rows) < limit:
                    break
                position = sort_key(rows[-1])

    def _read_quarters(
        self, batch: Sequence[ProjectQuarter], position: SortKey | None, size: int
    ) -> list[StoredRun]:
        return self._select_quarters(batch, position, [], self.order_by("r"), size)

    def read_quarters_by(
        self,
        quarters: Sequence[ProjectQuarter],
        conditions: Sequence[Condition],
        order_by: str,
        size: int,
    ) -> list[StoredRun]:
        """Read the first runs of the quarter hours in another order."""
        return self._select_quarters(quarters, None, conditions, order_by, size)

    def read_range_by(
        self, conditions: Sequence[Condition], order_by: str, size: int
    ) -> list[StoredRun]:
        """Read the first runs of the whole range in another order: all of them are compared."""
        window = (self.prepared.since, self.range_end(None))
        conditions = [
            ("r.workspace_id = %s", [self.prepared.workspace_id]),
            *self.prepared.conditions,
            *window_conditions(window, "r"),
            *conditions,
        ]
        if self.prepared.query.project_ids is not None:
            conditions.append(self.project_condition("r"))
        return select_runs(
            f"SELECT {COLUMNS} FROM trace_store_run r WHERE {conjunction_sql(conditions)}"
            f" ORDER BY {order_by} LIMIT {size}",
            parameters(conditions),
        )

    def _select_quarters(
        self,
        batch: Sequence[ProjectQuarter],
        position: SortKey | None,
        more_conditions: Sequence[Condition],
        order_by: str,
        size: int,
    ) -> list[StoredRun]:
        ranges = list(merge_quarters((project_id, begin) for begin, project_id in batch))
        projects, begins, ends = map(list, zip(*ranges, strict=True))
        prepared = self.prepared
        # Repeat the time bounds as constants, so that partitions are pruned at planning.
        bounds = self.range_conditions((latest(prepared.since, min(begins)), max(ends)), position)
        until = self.range_end(self.position)
        conditions = [*prepared.conditions, *bounds, *window_conditions((None, until), "r")]
        conditions += more_conditions
        # Force an index scan per interval; the planner would scan whole partitions.
        ending = f"ORDER BY {order_by} LIMIT {size}"
        return select_runs(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[])"
            " AS q(project_id, begins_at, ends_at) CROSS JOIN LATERAL"
            " (SELECT r.* FROM trace_store_run r"
            " WHERE r.workspace_id = %s AND r.project_id = q.project_id"
            " AND r.partition_time >= q.begins_at AND r.partition_time < q.ends_at"
            f" AND {conjunction_sql(conditions)} {ending}) r {ending}",
            [projects, begins, ends, prepared.workspace_id, *parameters(conditions)],
        )

    def _read_window(self, window: Window, position: SortKey | None, size: int) -> list[StoredRun]:
        """Read the first matching runs of the window, project by project through the index."""
        in_workspace: Condition = ("r.workspace_id = %s", [self.prepared.workspace_id])
        conditions = [
            in_workspace,
            *self.prepared.conditions,
            *self.range_conditions(window, position),
        ]
        projects = self.prepared.query.project_ids
        ending = f"ORDER BY {self.order_by('r')} LIMIT {size}"
        if projects is None or len(projects) == 1:
            if projects is not None:
                conditions.append(self.project_condition("r"))
            source = f"trace_store_run r WHERE {conjunction_sql(conditions)}"
            if self.prepared.needs_sort:
                # Select by id conditions first; an ordered scan would read all other runs, too.
                source = f"(SELECT r.* FROM {source} OFFSET 0) r"
            return select_runs(f"SELECT {COLUMNS} FROM {source} {ending}", parameters(conditions))
        conditions.append(("r.project_id = p.id", []))
        return select_runs(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
            f" (SELECT r.* FROM trace_store_run r WHERE {conjunction_sql(conditions)} {ending})"
            f" r {ending}",
            [list(projects), *parameters(conditions)],
        )

    def _position_conditions(self, window: Window, position: SortKey | None) -> list[Condition]:
        """Only the conditions that determine the position in list order."""
        conditions = [("r.workspace_id = %s", [self.prepared.workspace_id])]
        projects = self.prepared.query.project_ids
        if projects is not None:
            conditions.append(("r.project_id = %s", [projects[0]]))
        if self.prepared.query.is_root:
            conditions.append(("r.parent_run_id IS NULL", []))
        return [*conditions, *self.range_conditions(window, position)]


def _growing_batches(quarters: Iterable[ProjectQuarter]) -> Iterator[Sequence[ProjectQuarter]]:
    """Yield growing batches; quarter hours of the same time in several projects stay together."""
    batch: list[ProjectQuarter] = []
    size = 1
    for item in quarters:
        if len(batch) >= size and item[0] != batch[-1][0]:
            yield batch
            batch, size = [], min(2 * size, _MAX_QUARTERS_PER_BATCH)
        batch.append(item)
    if batch:
        yield batch
