"""Runs that may be what a query asks for, in its order, found piece by piece."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.tracing.store.conditions import Asked, Condition, later
from apps.tracing.store.fetching import Key
from apps.tracing.store.filtering.terms import Terms
from apps.tracing.store.hints import Hint
from apps.tracing.store.promising import Quarter, quarters
from apps.tracing.store.raw import raw_cursor, sql
from apps.tracing.store.reading import joined
from apps.tracing.store.rows import COLUMNS, Stored, select
from apps.tracing.store.terms import of_workspace

Place = tuple[datetime, UUID]
"""Where a run stands in the order of lists."""
Window = tuple[datetime | None, datetime | None]
"""From, and up to but without."""

PROBED = 2000
"""So many of the first runs are looked at before the index of terms is."""
_AHEAD = timedelta(days=2)
_FIRST = timedelta(days=3)
_WIDEST = timedelta(days=30)
"""Of the index's findings a whole window is put in order; of the runs, no more than is wanted."""
_SMALLEST, _LARGEST = 100, 2000
_MOST_QUARTERS = 64
_KEY = "r.workspace_id = %s AND r.id = {0}.id AND r.project_id = {0}.project_id"
_KEY += " AND r.placed_at = {0}.placed_at"


class Walk:
    """The runs that meet the conditions in SQL, after `place` if one is given."""

    def __init__(self, asked: Asked, place: Place | None) -> None:
        self.asked = asked
        self.place = place
        self.oldest_first = asked.query.oldest_first
        self._direction = "ASC" if self.oldest_first else "DESC"

    # -- ways to go -----------------------------------------------------------------------------

    def all(self, wanted: int) -> Iterator[Sequence[Stored]]:
        """In order through the runs themselves, `wanted` or more at a time."""
        size = wanted
        for window in self._windows(_FIRST, self.place):
            place = self.place
            while rows := self._rows(window, place, size):
                yield rows
                if len(rows) < size:
                    break
                place = _place(rows[-1])
                size = min(max(2 * size, _SMALLEST), _LARGEST)

    def probe(self, wanted: int) -> Sequence[Stored]:
        """Up to so many that meet the conditions, of the first `PROBED` runs and no others.

        Asked of one project, for the index of one gives the order.
        """
        window = (self.asked.since, self._end(self.place))
        conditions = self._placed(window, self.place)
        return select(
            f"SELECT {COLUMNS} FROM (SELECT r.* FROM tracing_run r WHERE {_and(conditions)}"
            f" ORDER BY {self._order('r')} LIMIT {PROBED}) r WHERE {_and(self.asked.conditions)}"
            f" ORDER BY {self._order('r')} LIMIT {wanted}",
            [*_values(conditions), *_values(self.asked.conditions)],
        )

    def by_terms(self, terms: Terms, wanted: int) -> Iterator[Sequence[Stored]]:
        """In order through those that the index of terms names, and those that are not in it yet.

        What is unsettled is listed first: what is settled meanwhile is found both ways.
        """
        unsettled = self._unsettled()
        listed = set(unsettled)
        indexed = (
            row for rows in self._indexed(terms, wanted) for row in rows if _key(row) not in listed
        )
        direct = (row for rows in self._of_keys(unsettled) for row in rows)
        merged = heapq.merge(indexed, direct, key=_place, reverse=not self.oldest_first)
        batch: list[Stored] = []
        size = wanted
        for row in merged:
            batch.append(row)
            if len(batch) >= size:
                yield batch
                batch, size = [], min(2 * size, _LARGEST)
        yield batch

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
            (since, self._end(self.place)),
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
                place = _place(rows[-1])

    # -- steps ----------------------------------------------------------------------------------

    def _in_quarters(self, some: Sequence[Quarter], place: Place | None, size: int) -> list[Stored]:
        ranges = list(joined((project_id, begin) for begin, project_id in some))
        projects, begins, ends = map(list, zip(*ranges, strict=True))
        asked = self.asked
        # Bounds of time once more, as constants: by them days are left out of the plan.
        bounds = self._bounds((later(asked.since, min(begins)), max(ends)), place)
        until = self._end(self.place)
        conditions = [*asked.conditions, *bounds, *_between((None, until), "r")]
        # Of each stretch by its index: the planner would rather read all of them from end to end.
        ending = f"ORDER BY {self._order('r')} LIMIT {size}"
        return select(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[])"
            " AS q(project_id, begins_at, ends_at) CROSS JOIN LATERAL"
            " (SELECT r.* FROM tracing_run r"
            " WHERE r.workspace_id = %s AND r.project_id = q.project_id"
            " AND r.placed_at >= q.begins_at AND r.placed_at < q.ends_at"
            f" AND {_and(conditions)} {ending}) r {ending}",
            [projects, begins, ends, asked.workspace_id, *_values(conditions)],
        )

    def _rows(self, window: Window, place: Place | None, size: int) -> list[Stored]:
        """The first ones, of each project by its index."""
        own: Condition = ("r.workspace_id = %s", [self.asked.workspace_id])
        conditions = [own, *self.asked.conditions, *self._bounds(window, place)]
        projects = self.asked.query.project_ids
        ending = f"ORDER BY {self._order('r')} LIMIT {size}"
        if projects is None or len(projects) == 1:
            if projects is not None:
                conditions.append(self._of_projects("r"))
            source = f"tracing_run r WHERE {_and(conditions)}"
            if self.asked.is_few:
                # By what names them, and not in order through all others.
                source = f"(SELECT r.* FROM {source} OFFSET 0) r"
            return select(f"SELECT {COLUMNS} FROM {source} {ending}", _values(conditions))
        conditions.append(("r.project_id = p.id", []))
        return select(
            f"SELECT {COLUMNS} FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
            f" (SELECT r.* FROM tracing_run r WHERE {_and(conditions)} {ending}) r {ending}",
            [list(projects), *_values(conditions)],
        )

    def _indexed(self, terms: Terms, size: int) -> Iterator[Sequence[Stored]]:
        """What is frequent is met among the first runs; for the rest the index is asked."""
        has: list[Condition] = [
            ("t.terms && %s", [of_workspace(self.asked.workspace_id, clause)]) for clause in terms
        ]
        place = self.place
        if len(self.asked.query.project_ids or ()) == 1:
            ending = self._place_of_probed()
            begin, end = self.asked.since, self._end(place)
            if ending is not None and self.oldest_first:
                end = ending[0] + timedelta.resolution
            elif ending is not None:
                begin = ending[0]
            upto = [] if ending is None else [self._beside(ending, "t", is_after=False)]
            while rows := self._named(has, (begin, end), upto, place, size, is_among_first=True):
                yield rows
                if len(rows) < size:
                    break
                place = _place(rows[-1])
            if ending is None:
                return
            place = ending
        for window in self._windows(_WIDEST, place):
            after = place
            while rows := self._named(has, window, [], after, size):
                yield rows
                if len(rows) < size:
                    break
                after = _place(rows[-1])

    def _named(
        self,
        has: Sequence[Condition],
        window: Window,
        others: Sequence[Condition],
        place: Place | None,
        size: int,
        *,
        is_among_first: bool = False,
    ) -> list[Stored]:
        """Runs with these terms in order, by the index of terms or through the first of all.

        The way is prescribed: nobody knows how frequent terms are, and the planner guesses.
        """
        where: list[Condition] = [("t.workspace_id = %s", [self.asked.workspace_id])]
        if self.asked.query.project_ids is not None:
            where.append(self._of_projects("t"))
        where += [*self._bounds(window, place, "t"), *others]
        inner, outer = (where, has) if is_among_first else ([*where, *has], [])
        ours = [*self.asked.conditions, *_between(window, "r")]
        return select(
            f"SELECT {COLUMNS} FROM (SELECT t.* FROM tracing_runterms t WHERE {_and(inner)}"
            f" ORDER BY {self._order('t')} OFFSET 0) t CROSS JOIN LATERAL"
            f" (SELECT r.* FROM tracing_run r WHERE {_KEY.format('t')} AND {_and(ours)} LIMIT 1) r"
            f" WHERE {_and(outer)} ORDER BY {self._order('t')} LIMIT {size}",
            [*_values(inner), self.asked.workspace_id, *_values(ours), *_values(outer)],
        )

    def _place_of_probed(self) -> Place | None:
        """Where the first runs end; None when there are no more than those."""
        where: list[Condition] = [
            ("t.workspace_id = %s", [self.asked.workspace_id]),
            self._of_projects("t"),
            *self._bounds((self.asked.since, self._end(self.place)), self.place, "t"),
        ]
        with raw_cursor() as cursor:
            cursor.execute(
                sql(
                    f"SELECT t.placed_at, t.id FROM tracing_runterms t WHERE {_and(where)}"
                    f" ORDER BY {self._order('t')} OFFSET {PROBED} LIMIT 1"
                ),
                _values(where),
                binary=True,
            )
            return cursor.fetchone()

    def _of_projects(self, table: str) -> Condition:
        projects = list(self.asked.query.project_ids or ())
        # As an equation: only so does an index give the order.
        if len(projects) == 1:
            return f"{table}.project_id = %s", projects
        return f"{table}.project_id = ANY(%s)", [projects]

    def _unsettled(self) -> list[Key]:
        """The runs that the index may not know, in order."""
        asked, (begin, end) = self.asked, (self.asked.since, self._end(self.place))
        projects = asked.query.project_ids
        with raw_cursor() as cursor:
            cursor.execute(
                "SELECT DISTINCT k.* FROM tracing_unsettled u"
                " CROSS JOIN unnest(u.run_ids, u.project_ids, u.placed_at)"
                " AS k(id, project_id, placed_at)"
                " WHERE u.workspace_id = %s AND (%s::uuid[] IS NULL OR k.project_id = ANY(%s))",
                [asked.workspace_id, *[None if projects is None else list(projects)] * 2],
                binary=True,
            )
            found = [
                (run_id, project_id, placed_at)
                for run_id, project_id, placed_at in cursor
                if (begin is None or placed_at >= begin)
                and (end is None or placed_at < end)
                and self._is_after((placed_at, run_id))
            ]
        return sorted(found, key=lambda key: (key[2], key[0]), reverse=not self.oldest_first)

    def _of_keys(self, keys: Sequence[Key]) -> Iterator[Sequence[Stored]]:
        for begin in range(0, len(keys), _LARGEST):
            some = keys[begin : begin + _LARGEST]
            times = [key[2] for key in some]
            conditions = [
                *self.asked.conditions,
                ("r.placed_at BETWEEN %s AND %s", [min(times), max(times)]),
            ]
            yield select(
                f"SELECT {COLUMNS}"
                " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
                f" AS k(id, project_id, placed_at) JOIN tracing_run r ON {_KEY.format('k')}"
                f" WHERE {_and(conditions)} ORDER BY {self._order('r')}",
                [
                    [key[0] for key in some],
                    [key[1] for key in some],
                    times,
                    self.asked.workspace_id,
                    *_values(conditions),
                ],
            )

    # -- places ---------------------------------------------------------------------------------

    def _order(self, table: str) -> str:
        return f"{table}.placed_at {self._direction}, {table}.id {self._direction}"

    def _windows(self, widest: timedelta, place: Place | None) -> Iterator[Window]:
        """Stretches of time in order, each planned for its own days: the newest few days first."""
        since, end = self.asked.since, self._end(place)
        if self.oldest_first or self.asked.is_pointed or end is None:
            yield since, end
            return
        # Nearly nothing is placed in the future.
        width = _FIRST if place is None else timedelta(days=1)
        while width <= widest and (since is None or end - width > since):
            yield end - width, end
            end, width = end - width, 2 * width
        yield since, end

    def _end(self, place: Place | None) -> datetime | None:
        if self.oldest_first or self.asked.is_pointed:
            return None if self.asked.until is None else self.asked.until + timedelta.resolution
        latest = datetime.now(UTC) + _AHEAD
        if self.asked.until is not None:
            latest = min(latest, self.asked.until + timedelta.resolution)
        if place is not None:
            latest = min(latest, place[0] + timedelta.resolution)
        return latest

    def _bounds(self, window: Window, place: Place | None, table: str = "r") -> list[Condition]:
        bounds = _between(window, table)
        if place is not None:
            bounds.append(self._beside(place, table, is_after=True))
        return bounds

    def _beside(self, place: Place, table: str, *, is_after: bool) -> Condition:
        """After the place in the order of the list; or before it, or there."""
        side = ">" if self.oldest_first == is_after else "<"
        # The second condition is implied; it is the one that partitions are pruned by.
        strictly = f"({table}.placed_at, {table}.id) {side}{'' if is_after else '='} (%s, %s)"
        return f"{strictly} AND {table}.placed_at {side}= %s", [*place, place[0]]

    def _placed(self, window: Window, place: Place | None) -> list[Condition]:
        """Everything that decides where in the order a run stands, and nothing else."""
        conditions = [("r.workspace_id = %s", [self.asked.workspace_id])]
        projects = self.asked.query.project_ids
        if projects is not None:
            conditions.append(("r.project_id = %s", [projects[0]]))
        if self.asked.query.is_root:
            conditions.append(("r.parent_run_id IS NULL", []))
        return [*conditions, *self._bounds(window, place)]

    def _is_after(self, place: Place) -> bool:
        if self.place is None:
            return True
        return place > self.place if self.oldest_first else place < self.place


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


def _between(window: Window, table: str) -> list[Condition]:
    begin, end = window
    conditions: list[Condition] = []
    if begin is not None:
        conditions.append((f"{table}.placed_at >= %s", [begin]))
    if end is not None:
        conditions.append((f"{table}.placed_at < %s", [end]))
    return conditions


def _place(row: Stored) -> Place:
    return row[0].placed_at, row[0].id


def _key(row: Stored) -> Key:
    return row[0].id, row[0].project_id, row[0].placed_at


def _and(conditions: Sequence[Condition]) -> str:
    return " AND ".join(f"({text})" for text, _ in conditions) or "true"


def _values(conditions: Sequence[Condition]) -> list[Any]:
    return [value for _, given in conditions for value in given]
