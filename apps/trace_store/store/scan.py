"""Runs that may be what a query asks for, in its order, found piece by piece."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from apps.trace_store.store import order
from apps.trace_store.store.conditions import Condition, later
from apps.trace_store.store.interval_pruning import Quarter, quarters
from apps.trace_store.store.order import (
    FIRST,
    LARGEST,
    Line,
    Place,
    Window,
    all_true,
    between,
    place_of,
    values_of,
)
from apps.trace_store.store.pruning import Hint
from apps.trace_store.store.rollup_plan import joined
from apps.trace_store.store.rows import COLUMNS, Stored, select

_SMALLEST = 100
_MOST_QUARTERS = 64


class Walk(Line):
    """The runs that meet the conditions in SQL, after `place` if one is given."""

    def all(self, wanted: int) -> Iterator[Sequence[Stored]]:
        """In order through the runs themselves, `wanted` or more at a time."""
        size = wanted
        for window in self.windows(FIRST, self.place):
            place = self.place
            while rows := self._rows(window, place, size):
                yield rows
                if len(rows) < size:
                    break
                place = place_of(rows[-1])
                size = min(max(2 * size, _SMALLEST), LARGEST)

    def probe(self, wanted: int) -> Sequence[Stored]:
        """Up to so many that meet the conditions, of the first `PROBED` runs and no others.

        Asked of one project, for the index of one gives the order.
        """
        window = (self.asked.since, self.end(self.place))
        conditions = self._placed(window, self.place)
        return select(
            f"SELECT {COLUMNS} FROM (SELECT r.* FROM tracing_run r WHERE {all_true(conditions)}"
            f" ORDER BY {self.order('r')} LIMIT {order.PROBED}) r"
            f" WHERE {all_true(self.asked.conditions)}"
            f" ORDER BY {self.order('r')} LIMIT {wanted}",
            [*values_of(conditions), *values_of(self.asked.conditions)],
        )

    def promising(self, hint: Hint) -> Iterator[Quarter] | None:
        """The stretches in which rollups leave room for what is asked for."""
        projects = list(dict.fromkeys(self.asked.query.project_ids or ()))
        since = self.asked.since
        if self.place is not None and self.oldest_first:
            since = later(since, self.place[0])
        return quarters(
            self.asked.workspace_id,
            projects,
            hint,
            (since, self.end(self.place)),
            oldest_first=self.oldest_first,
        )

    def by_quarters(self, found: Iterable[Quarter], wanted: int) -> Iterator[Sequence[Stored]]:
        """Through these stretches alone; they are in order."""
        for some in _growing(found):
            place = self.place
            while rows := self._in_quarters(some, place, wanted):
                yield rows
                if len(rows) < wanted:
                    break
                place = place_of(rows[-1])

    def _in_quarters(self, some: Sequence[Quarter], place: Place | None, size: int) -> list[Stored]:
        ranges = list(joined((project_id, begin) for begin, project_id in some))
        projects, begins, ends = map(list, zip(*ranges, strict=True))
        asked = self.asked
        # Bounds of time once more, as constants: by them days are left out of the plan.
        bounds = self.bounds((later(asked.since, min(begins)), max(ends)), place)
        until = self.end(self.place)
        conditions = [*asked.conditions, *bounds, *between((None, until), "r")]
        # Of each stretch by its index: the planner would rather read all of them from end to end.
        ending = f"ORDER BY {self.order('r')} LIMIT {size}"
        return select(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[])"
            " AS q(project_id, begins_at, ends_at) CROSS JOIN LATERAL"
            " (SELECT r.* FROM tracing_run r"
            " WHERE r.workspace_id = %s AND r.project_id = q.project_id"
            " AND r.placed_at >= q.begins_at AND r.placed_at < q.ends_at"
            f" AND {all_true(conditions)} {ending}) r {ending}",
            [projects, begins, ends, asked.workspace_id, *values_of(conditions)],
        )

    def _rows(self, window: Window, place: Place | None, size: int) -> list[Stored]:
        """The first ones, of each project by its index."""
        own: Condition = ("r.workspace_id = %s", [self.asked.workspace_id])
        conditions = [own, *self.asked.conditions, *self.bounds(window, place)]
        projects = self.asked.query.project_ids
        ending = f"ORDER BY {self.order('r')} LIMIT {size}"
        if projects is None or len(projects) == 1:
            if projects is not None:
                conditions.append(self.of_projects("r"))
            source = f"tracing_run r WHERE {all_true(conditions)}"
            if self.asked.is_few:
                # By what names them, and not in order through all others.
                source = f"(SELECT r.* FROM {source} OFFSET 0) r"
            return select(f"SELECT {COLUMNS} FROM {source} {ending}", values_of(conditions))
        conditions.append(("r.project_id = p.id", []))
        return select(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
            f" (SELECT r.* FROM tracing_run r WHERE {all_true(conditions)} {ending}) r {ending}",
            [list(projects), *values_of(conditions)],
        )

    def _placed(self, window: Window, place: Place | None) -> list[Condition]:
        """Everything that decides where in the order a run stands, and nothing else."""
        conditions = [("r.workspace_id = %s", [self.asked.workspace_id])]
        projects = self.asked.query.project_ids
        if projects is not None:
            conditions.append(("r.project_id = %s", [projects[0]]))
        if self.asked.query.is_root:
            conditions.append(("r.parent_run_id IS NULL", []))
        return [*conditions, *self.bounds(window, place)]


def _growing(found: Iterable[Quarter]) -> Iterator[Sequence[Quarter]]:
    """More and more of them at once; those of one time, of several projects, together."""
    some: list[Quarter] = []
    size = 1
    for one in found:
        if len(some) >= size and one[0] != some[-1][0]:
            yield some
            some, size = [], min(2 * size, _MOST_QUARTERS)
        some.append(one)
    if some:
        yield some
