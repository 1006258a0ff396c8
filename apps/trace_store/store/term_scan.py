"""Runs in their order that the index of terms names, and those that are not in it yet."""

# ruff: noqa: S608  (statements are made of this package's own names; values go beside them)

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import timedelta

from apps.trace_store.store import order
from apps.trace_store.store.conditions import Condition
from apps.trace_store.store.fetching import Key
from apps.trace_store.store.filtering.terms import Terms
from apps.trace_store.store.order import (
    LARGEST,
    Line,
    Place,
    Window,
    all_true,
    between,
    key_of,
    place_of,
    values_of,
)
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rows import COLUMNS, Stored, select
from apps.trace_store.store.terms import of_workspace

_WIDEST = timedelta(days=30)
"""Of the index's findings a whole window is put in order; of the runs, no more than is wanted."""

_KEY = "r.workspace_id = %s AND r.id = {0}.id AND r.project_id = {0}.project_id"
_KEY += " AND r.placed_at = {0}.placed_at"


class TermWalk(Line):
    """The same as `Walk`, by the index of terms."""

    def rows(self, terms: Terms, wanted: int) -> Iterator[Sequence[Stored]]:
        """In order through those that the index of terms names, and those that are not in it yet.

        What is unsettled is listed first: what is settled meanwhile is found both ways.
        """
        unsettled = self._unsettled()
        listed = set(unsettled)
        indexed = (
            row
            for rows in self._indexed(terms, wanted)
            for row in rows
            if key_of(row) not in listed
        )
        direct = (row for rows in self._of_keys(unsettled) for row in rows)
        merged = heapq.merge(indexed, direct, key=place_of, reverse=not self.oldest_first)
        batch: list[Stored] = []
        size = wanted
        for row in merged:
            batch.append(row)
            if len(batch) >= size:
                yield batch
                batch, size = [], min(2 * size, LARGEST)
        yield batch

    def _indexed(self, terms: Terms, size: int) -> Iterator[Sequence[Stored]]:
        """What is frequent is met among the first runs; for the rest the index is asked."""
        has: list[Condition] = [
            ("t.terms && %s", [of_workspace(self.asked.workspace_id, clause)]) for clause in terms
        ]
        place = self.place
        if len(self.asked.query.project_ids or ()) == 1:
            ending = self._place_of_probed()
            begin, end = self.asked.since, self.end(place)
            if ending is not None and self.oldest_first:
                end = ending[0] + timedelta.resolution
            elif ending is not None:
                begin = ending[0]
            upto = [] if ending is None else [self.beside(ending, "t", is_after=False)]
            while rows := self._named(has, (begin, end), upto, place, size, is_among_first=True):
                yield rows
                if len(rows) < size:
                    break
                place = place_of(rows[-1])
            if ending is None:
                return
            place = ending
        for window in self.windows(_WIDEST, place):
            after = place
            while rows := self._named(has, window, [], after, size):
                yield rows
                if len(rows) < size:
                    break
                after = place_of(rows[-1])

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
            where.append(self.of_projects("t"))
        where += [*self.bounds(window, place, "t"), *others]
        inner, outer = (where, has) if is_among_first else ([*where, *has], [])
        ours = [*self.asked.conditions, *between(window, "r")]
        return select(
            f"SELECT {COLUMNS} FROM (SELECT t.* FROM tracing_runterms t WHERE {all_true(inner)}"
            f" ORDER BY {self.order('t')} OFFSET 0) t CROSS JOIN LATERAL"
            f" (SELECT r.* FROM tracing_run r WHERE {_KEY.format('t')}"
            f" AND {all_true(ours)} LIMIT 1) r"
            f" WHERE {all_true(outer)} ORDER BY {self.order('t')} LIMIT {size}",
            [*values_of(inner), self.asked.workspace_id, *values_of(ours), *values_of(outer)],
        )

    def _place_of_probed(self) -> Place | None:
        """Where the first runs end; None when there are no more than those."""
        where: list[Condition] = [
            ("t.workspace_id = %s", [self.asked.workspace_id]),
            self.of_projects("t"),
            *self.bounds((self.asked.since, self.end(self.place)), self.place, "t"),
        ]
        with raw_cursor() as cursor:
            cursor.execute(
                sql(
                    f"SELECT t.placed_at, t.id FROM tracing_runterms t WHERE {all_true(where)}"
                    f" ORDER BY {self.order('t')} OFFSET {order.PROBED} LIMIT 1"
                ),
                values_of(where),
                binary=True,
            )
            return cursor.fetchone()

    def _unsettled(self) -> list[Key]:
        """The runs that the index may not know, in order."""
        asked, (begin, end) = self.asked, (self.asked.since, self.end(self.place))
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
                and self.is_after((placed_at, run_id))
            ]
        return sorted(found, key=lambda key: (key[2], key[0]), reverse=not self.oldest_first)

    def _of_keys(self, keys: Sequence[Key]) -> Iterator[Sequence[Stored]]:
        for begin in range(0, len(keys), LARGEST):
            some = keys[begin : begin + LARGEST]
            times = [key[2] for key in some]
            conditions = [
                *self.asked.conditions,
                ("r.placed_at BETWEEN %s AND %s", [min(times), max(times)]),
            ]
            yield select(
                f"SELECT {COLUMNS}"
                " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
                f" AS k(id, project_id, placed_at) JOIN tracing_run r ON {_KEY.format('k')}"
                f" WHERE {all_true(conditions)} ORDER BY {self.order('r')}",
                [
                    [key[0] for key in some],
                    [key[1] for key in some],
                    times,
                    self.asked.workspace_id,
                    *values_of(conditions),
                ],
            )
