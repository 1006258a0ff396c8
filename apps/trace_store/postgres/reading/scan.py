"""The order of lists: where a run stands in it, and what lies before and after a place."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

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
"""Where a run stands in the order of lists."""
Window = tuple[datetime | None, datetime | None]
"""From, and up to but without."""

PROBED_RUNS = 2000
"""So many of the first runs are looked at before the index of terms is."""
FIRST_WINDOW = timedelta(days=3)
MAX_BATCH = 2000
_FUTURE_MARGIN = timedelta(days=2)


class OrderedQuery:
    """What is asked for in the order of its list, after `place` if one is given."""

    def __init__(self, asked: PreparedQuery, place: SortKey | None) -> None:
        self.asked = asked
        self.place = place
        self.oldest_first = asked.query.oldest_first
        self.direction = "ASC" if self.oldest_first else "DESC"

    def order(self, table: str) -> str:
        return f"{table}.partition_time {self.direction}, {table}.id {self.direction}"

    def windows(self, widest: timedelta, place: SortKey | None) -> Iterator[Window]:
        """Stretches of time in order, each planned for its own days: the newest few days first."""
        since, end = self.asked.since, self.end(place)
        if self.oldest_first or self.asked.is_pointed or end is None:
            yield since, end
            return
        # Nearly nothing is placed in the future.
        width = FIRST_WINDOW if place is None else timedelta(days=1)
        while width <= widest and (since is None or end - width > since):
            yield end - width, end
            end, width = end - width, 2 * width
        yield since, end

    def end(self, place: SortKey | None) -> datetime | None:
        if self.oldest_first or self.asked.is_pointed:
            return None if self.asked.until is None else self.asked.until + timedelta.resolution
        latest = datetime.now(UTC) + _FUTURE_MARGIN
        if self.asked.until is not None:
            latest = min(latest, self.asked.until + timedelta.resolution)
        if place is not None:
            latest = min(latest, place[0] + timedelta.resolution)
        return latest

    def bounds(self, window: Window, place: SortKey | None, table: str = "r") -> list[Condition]:
        bounds = window_conditions(window, table)
        if place is not None:
            bounds.append(self.beside(place, table, is_after=True))
        return bounds

    def beside(self, place: SortKey, table: str, *, is_after: bool) -> Condition:
        """After the place in the order of the list; or before it, or there."""
        side = ">" if self.oldest_first == is_after else "<"
        # The second condition is implied; it is the one that partitions are pruned by.
        strictly = f"({table}.partition_time, {table}.id) {side}{'' if is_after else '='} (%s, %s)"
        return f"{strictly} AND {table}.partition_time {side}= %s", [*place, place[0]]

    def of_projects(self, table: str) -> Condition:
        projects = list(self.asked.query.project_ids or ())
        # As an equation: only so does an index give the order.
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
    """The runs that meet the conditions in SQL, after `place` if one is given."""

    def all(self, wanted: int) -> Iterator[Sequence[StoredRun]]:
        """In order through the runs themselves, `wanted` or more at a time."""
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
        """Up to so many that meet the conditions, of the first `PROBED` runs and no others.

        Asked of one project, for the index of one gives the order.
        """
        window = (self.asked.since, self.end(self.place))
        conditions = self._placed(window, self.place)
        return select_runs(
            f"SELECT {COLUMNS} FROM (SELECT r.* FROM trace_store_run r WHERE"
            f" {conjunction_sql(conditions)}"
            f" ORDER BY {self.order('r')} LIMIT {PROBED_RUNS}) r"
            f" WHERE {conjunction_sql(self.asked.conditions)}"
            f" ORDER BY {self.order('r')} LIMIT {wanted}",
            [*parameters(conditions), *parameters(self.asked.conditions)],
        )

    def promising(self, hint: PruningHint) -> Iterator[ProjectQuarter] | None:
        """The stretches in which rollups leave room for what is asked for."""
        projects = list(dict.fromkeys(self.asked.query.project_ids or ()))
        since = self.asked.since
        if self.place is not None and self.oldest_first:
            since = latest(since, self.place[0])
        return candidate_quarters(
            self.asked.workspace_id,
            projects,
            hint,
            (since, self.end(self.place)),
            oldest_first=self.oldest_first,
        )

    def by_quarters(
        self, found: Iterable[ProjectQuarter], wanted: int
    ) -> Iterator[Sequence[StoredRun]]:
        """Through these stretches alone; they are in order."""
        for some in _growing_batches(found):
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
        asked = self.asked
        # Bounds of time once more, as constants: by them days are left out of the plan.
        bounds = self.bounds((latest(asked.since, min(begins)), max(ends)), place)
        until = self.end(self.place)
        conditions = [*asked.conditions, *bounds, *window_conditions((None, until), "r")]
        # Of each stretch by its index: the planner would rather read all of them from end to end.
        ending = f"ORDER BY {self.order('r')} LIMIT {size}"
        return select_runs(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[])"
            " AS q(project_id, begins_at, ends_at) CROSS JOIN LATERAL"
            " (SELECT r.* FROM trace_store_run r"
            " WHERE r.workspace_id = %s AND r.project_id = q.project_id"
            " AND r.partition_time >= q.begins_at AND r.partition_time < q.ends_at"
            f" AND {conjunction_sql(conditions)} {ending}) r {ending}",
            [projects, begins, ends, asked.workspace_id, *parameters(conditions)],
        )

    def _rows(self, window: Window, place: SortKey | None, size: int) -> list[StoredRun]:
        """The first ones, of each project by its index."""
        own: Condition = ("r.workspace_id = %s", [self.asked.workspace_id])
        conditions = [own, *self.asked.conditions, *self.bounds(window, place)]
        projects = self.asked.query.project_ids
        ending = f"ORDER BY {self.order('r')} LIMIT {size}"
        if projects is None or len(projects) == 1:
            if projects is not None:
                conditions.append(self.of_projects("r"))
            source = f"trace_store_run r WHERE {conjunction_sql(conditions)}"
            if self.asked.is_few:
                # By what names them, and not in order through all others.
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
        """Everything that decides where in the order a run stands, and nothing else."""
        conditions = [("r.workspace_id = %s", [self.asked.workspace_id])]
        projects = self.asked.query.project_ids
        if projects is not None:
            conditions.append(("r.project_id = %s", [projects[0]]))
        if self.asked.query.is_root:
            conditions.append(("r.parent_run_id IS NULL", []))
        return [*conditions, *self.bounds(window, place)]


def _growing_batches(found: Iterable[ProjectQuarter]) -> Iterator[Sequence[ProjectQuarter]]:
    """More and more of them at once; those of one time, of several projects, together."""
    some: list[ProjectQuarter] = []
    size = 1
    for one in found:
        if len(some) >= size and one[0] != some[-1][0]:
            yield some
            some, size = [], min(2 * size, _MAX_QUARTERS_PER_BATCH)
        some.append(one)
    if some:
        yield some
