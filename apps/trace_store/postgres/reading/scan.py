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
    candidate_quarters,
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
    """A prepared query in list order, after the position `place` if given."""

    def __init__(self, query: PreparedQuery, place: SortKey | None) -> None:
        self.prepared = query
        self.place = place
        self.oldest_first = query.query.oldest_first
        self.direction = "ASC" if self.oldest_first else "DESC"

    def order(self, table: str) -> str:
        return f"{table}.partition_time {self.direction}, {table}.id {self.direction}"

    def windows(self, widest: timedelta, place: SortKey | None) -> Iterator[Window]:
        """Yield windows in order, each planned for its own days: the newest few days first."""
        since, end = self.prepared.since, self.end(place)
        if self.oldest_first or self.prepared.is_pointed or end is None:
            yield since, end
            return
        # Few runs have a partition time in the future.
        width = FIRST_WINDOW if place is None else timedelta(days=1)
        while width <= widest and (since is None or end - width > since):
            yield end - width, end
            end, width = end - width, 2 * width
        yield since, end

    def end(self, place: SortKey | None) -> datetime | None:
        if self.oldest_first or self.prepared.is_pointed:
            return (
                None if self.prepared.until is None else self.prepared.until + timedelta.resolution
            )
        latest = datetime.now(UTC) + _FUTURE_MARGIN
        if self.prepared.until is not None:
            latest = min(latest, self.prepared.until + timedelta.resolution)
        if place is not None:
            latest = min(latest, place[0] + timedelta.resolution)
        return latest

    def bounds(self, window: Window, place: SortKey | None, table: str = "r") -> list[Condition]:
        bounds = window_conditions(window, table)
        if place is not None:
            bounds.append(self.compare_with_position(place, table, is_after=True))
        return bounds

    def compare_with_position(self, place: SortKey, table: str, *, is_after: bool) -> Condition:
        """The condition of runs after the position; or at and before it."""
        side = ">" if self.oldest_first == is_after else "<"
        # The second condition is redundant, but partitions are pruned by it.
        strictly = f"({table}.partition_time, {table}.id) {side}{'' if is_after else '='} (%s, %s)"
        return f"{strictly} AND {table}.partition_time {side}= %s", [*place, place[0]]

    def of_projects(self, table: str) -> Condition:
        projects = list(self.prepared.query.project_ids or ())
        # Only an equality lets an index provide the order.
        if len(projects) == 1:
            return f"{table}.project_id = %s", projects
        return f"{table}.project_id = ANY(%s)", [projects]

    def is_after(self, place: SortKey) -> bool:
        if self.place is None:
            return True
        return place > self.place if self.oldest_first else place < self.place


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
    return [value for _, given in conditions for value in given]


_MIN_BATCH = 100
_MAX_QUARTERS_PER_BATCH = 64


class RunScan(OrderedQuery):
    """Reads the runs that meet the SQL conditions, after a position if given."""

    def all(self, wanted: int) -> Iterator[Sequence[StoredRun]]:
        """Yield batches of at least `wanted` runs in order."""
        size = wanted
        for window in self.windows(FIRST_WINDOW, self.place):
            place = self.place
            while rows := self._rows(window, place, size):
                yield rows
                if len(rows) < size:
                    break
                place = sort_key(rows[-1])
                size = min(max(2 * size, _MIN_BATCH), MAX_BATCH)

    def probe(self, wanted: int) -> Sequence[StoredRun]:
        """Return up to `wanted` matches among the first `PROBED_RUNS` runs.

        Only for one project, because the index of one project provides the order.
        """
        window = (self.prepared.since, self.end(self.place))
        conditions = self._placed(window, self.place)
        return select_runs(
            f"SELECT {COLUMNS} FROM (SELECT r.* FROM trace_store_run r WHERE"
            f" {conjunction_sql(conditions)}"
            f" ORDER BY {self.order('r')} LIMIT {PROBED_RUNS}) r"
            f" WHERE {conjunction_sql(self.prepared.conditions)}"
            f" ORDER BY {self.order('r')} LIMIT {wanted}",
            [*parameters(conditions), *parameters(self.prepared.conditions)],
        )

    def promising(self, hint: PruningHint) -> Iterator[ProjectQuarter] | None:
        """The quarter hours that may contain matches according to rollups."""
        projects = list(dict.fromkeys(self.prepared.query.project_ids or ()))
        since = self.prepared.since
        if self.place is not None and self.oldest_first:
            since = latest(since, self.place[0])
        return candidate_quarters(
            self.prepared.workspace_id,
            projects,
            hint,
            (since, self.end(self.place)),
            oldest_first=self.oldest_first,
        )

    def by_quarters(
        self, quarters: Iterable[ProjectQuarter], wanted: int
    ) -> Iterator[Sequence[StoredRun]]:
        """Scan only these quarter hours, which are in order."""
        for some in _growing_batches(quarters):
            place = self.place
            while rows := self._in_quarters(some, place, wanted):
                yield rows
                if len(rows) < wanted:
                    break
                place = sort_key(rows[-1])

    def _in_quarters(
        self, some: Sequence[ProjectQuarter], place: SortKey | None, size: int
    ) -> list[StoredRun]:
        ranges = list(merge_quarters((project_id, begin) for begin, project_id in some))
        projects, begins, ends = map(list, zip(*ranges, strict=True))
        prepared = self.prepared
        # Repeat the time bounds as constants, so that partitions are pruned at planning.
        bounds = self.bounds((latest(prepared.since, min(begins)), max(ends)), place)
        until = self.end(self.place)
        conditions = [*prepared.conditions, *bounds, *window_conditions((None, until), "r")]
        # Force an index scan per interval; the planner would scan whole partitions.
        ending = f"ORDER BY {self.order('r')} LIMIT {size}"
        return select_runs(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[])"
            " AS q(project_id, begins_at, ends_at) CROSS JOIN LATERAL"
            " (SELECT r.* FROM trace_store_run r"
            " WHERE r.workspace_id = %s AND r.project_id = q.project_id"
            " AND r.partition_time >= q.begins_at AND r.partition_time < q.ends_at"
            f" AND {conjunction_sql(conditions)} {ending}) r {ending}",
            [projects, begins, ends, prepared.workspace_id, *parameters(conditions)],
        )

    def _rows(self, window: Window, place: SortKey | None, size: int) -> list[StoredRun]:
        """Read the first matching runs, of each project by its index."""
        own: Condition = ("r.workspace_id = %s", [self.prepared.workspace_id])
        conditions = [own, *self.prepared.conditions, *self.bounds(window, place)]
        projects = self.prepared.query.project_ids
        ending = f"ORDER BY {self.order('r')} LIMIT {size}"
        if projects is None or len(projects) == 1:
            if projects is not None:
                conditions.append(self.of_projects("r"))
            source = f"trace_store_run r WHERE {conjunction_sql(conditions)}"
            if self.prepared.is_few:
                # Select by id conditions first; an ordered scan would pass all other runs.
                source = f"(SELECT r.* FROM {source} OFFSET 0) r"
            return select_runs(f"SELECT {COLUMNS} FROM {source} {ending}", parameters(conditions))
        conditions.append(("r.project_id = p.id", []))
        return select_runs(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
            f" (SELECT r.* FROM trace_store_run r WHERE {conjunction_sql(conditions)} {ending})"
            f" r {ending}",
            [list(projects), *parameters(conditions)],
        )

    def _placed(self, window: Window, place: SortKey | None) -> list[Condition]:
        """Only the conditions that determine the position in list order."""
        conditions = [("r.workspace_id = %s", [self.prepared.workspace_id])]
        projects = self.prepared.query.project_ids
        if projects is not None:
            conditions.append(("r.project_id = %s", [projects[0]]))
        if self.prepared.query.is_root:
            conditions.append(("r.parent_run_id IS NULL", []))
        return [*conditions, *self.bounds(window, place)]


def _growing_batches(quarters: Iterable[ProjectQuarter]) -> Iterator[Sequence[ProjectQuarter]]:
    """Yield growing batches; quarter hours of the same time in several projects stay together."""
    some: list[ProjectQuarter] = []
    size = 1
    for item in quarters:
        if len(some) >= size and item[0] != some[-1][0]:
            yield some
            some, size = [], min(2 * size, _MAX_QUARTERS_PER_BATCH)
        some.append(item)
    if some:
        yield some
