"""Scans runs by the term index, merged with the runs that are not indexed yet."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import timedelta

from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.postgres.filtering.terms import RequiredTerms
from apps.trace_store.postgres.postprocess.term_index import salt_terms
from apps.trace_store.postgres.reading import scan
from apps.trace_store.postgres.reading.prepared_query import Condition
from apps.trace_store.postgres.reading.rows import COLUMNS, StoredRun, select_runs
from apps.trace_store.postgres.reading.scan import (
    MAX_BATCH,
    OrderedQuery,
    SortKey,
    Window,
    conjunction_sql,
    parameters,
    run_key,
    sort_key,
    window_conditions,
)
from apps.trace_store.types import RunKey

_MAX_WINDOW = timedelta(days=30)
"""The index results of a whole window are sorted, so windows are limited."""

_KEY = "r.workspace_id = %s AND r.id = {0}.id AND r.project_id = {0}.project_id"
_KEY += " AND r.partition_time = {0}.partition_time"


class TermScan(OrderedQuery):
    """Like `RunScan`, by the term index."""

    def rows(self, terms: RequiredTerms, wanted: int) -> Iterator[Sequence[StoredRun]]:
        """Yield runs in order: those from the term index and those that are not indexed yet.

        Pending runs are listed first: runs processed in between are then found both ways.
        """
        pending = self._pending_runs()
        listed = set(pending)
        indexed = (
            row
            for rows in self._indexed(terms, wanted)
            for row in rows
            if run_key(row) not in listed
        )
        direct = (row for rows in self._of_keys(pending) for row in rows)
        merged = heapq.merge(indexed, direct, key=sort_key, reverse=not self.oldest_first)
        batch: list[StoredRun] = []
        size = wanted
        for row in merged:
            batch.append(row)
            if len(batch) >= size:
                yield batch
                batch, size = [], min(2 * size, MAX_BATCH)
        yield batch

    def _indexed(self, terms: RequiredTerms, size: int) -> Iterator[Sequence[StoredRun]]:
        """Check the terms of the first runs, which finds frequent terms; then use the index."""
        has: list[Condition] = [
            ("t.terms && %s", [salt_terms(self.prepared.workspace_id, clause)]) for clause in terms
        ]
        place = self.place
        if len(self.prepared.query.project_ids or ()) == 1:
            ending = self._place_of_probed()
            begin, end = self.prepared.since, self.end(place)
            if ending is not None and self.oldest_first:
                end = ending[0] + timedelta.resolution
            elif ending is not None:
                begin = ending[0]
            upto = (
                [] if ending is None else [self.compare_with_position(ending, "t", is_after=False)]
            )
            while rows := self._named(has, (begin, end), upto, place, size, is_among_first=True):
                yield rows
                if len(rows) < size:
                    break
                place = sort_key(rows[-1])
            if ending is None:
                return
            place = ending
        for window in self.windows(_MAX_WINDOW, place):
            after = place
            while rows := self._named(has, window, [], after, size):
                yield rows
                if len(rows) < size:
                    break
                after = sort_key(rows[-1])

    def _named(
        self,
        has: Sequence[Condition],
        window: Window,
        others: Sequence[Condition],
        place: SortKey | None,
        size: int,
        *,
        is_among_first: bool = False,
    ) -> list[StoredRun]:
        """Read runs with these terms in order, by the term index or through the first runs.

        The plan is forced, because the planner does not know how frequent terms are.
        """
        where: list[Condition] = [("t.workspace_id = %s", [self.prepared.workspace_id])]
        if self.prepared.query.project_ids is not None:
            where.append(self.of_projects("t"))
        where += [*self.bounds(window, place, "t"), *others]
        inner, outer = (where, has) if is_among_first else ([*where, *has], [])
        ours = [*self.prepared.conditions, *window_conditions(window, "r")]
        return select_runs(
            f"SELECT {COLUMNS} FROM (SELECT t.* FROM trace_store_run_terms t WHERE"
            f" {conjunction_sql(inner)}"
            f" ORDER BY {self.order('t')} OFFSET 0) t CROSS JOIN LATERAL"
            f" (SELECT r.* FROM trace_store_run r WHERE {_KEY.format('t')}"
            f" AND {conjunction_sql(ours)} LIMIT 1) r"
            f" WHERE {conjunction_sql(outer)} ORDER BY {self.order('t')} LIMIT {size}",
            [*parameters(inner), self.prepared.workspace_id, *parameters(ours), *parameters(outer)],
        )

    def _place_of_probed(self) -> SortKey | None:
        """The position after the first `PROBED_RUNS` runs; None if there are no more."""
        where: list[Condition] = [
            ("t.workspace_id = %s", [self.prepared.workspace_id]),
            self.of_projects("t"),
            *self.bounds((self.prepared.since, self.end(self.place)), self.place, "t"),
        ]
        with raw_cursor() as cursor:
            cursor.execute(
                sql(
                    "SELECT t.partition_time, t.id FROM trace_store_run_terms t WHERE"
                    f" {conjunction_sql(where)}"
                    f" ORDER BY {self.order('t')} OFFSET {scan.PROBED_RUNS} LIMIT 1"
                ),
                parameters(where),
                binary=True,
            )
            return cursor.fetchone()

    def _pending_runs(self) -> list[RunKey]:
        """The runs that may not be indexed yet, in order."""
        prepared, (begin, end) = self.prepared, (self.prepared.since, self.end(self.place))
        projects = prepared.query.project_ids
        with raw_cursor() as cursor:
            cursor.execute(
                "SELECT DISTINCT k.* FROM trace_store_pending_run u"
                " CROSS JOIN unnest(u.run_ids, u.project_ids, u.partition_time)"
                " AS k(id, project_id, partition_time)"
                " WHERE u.workspace_id = %s AND (%s::uuid[] IS NULL OR k.project_id = ANY(%s))",
                [prepared.workspace_id, *[None if projects is None else list(projects)] * 2],
                binary=True,
            )
            results = [
                (run_id, project_id, partition_time)
                for run_id, project_id, partition_time in cursor
                if (begin is None or partition_time >= begin)
                and (end is None or partition_time < end)
                and self.is_after((partition_time, run_id))
            ]
        return sorted(results, key=lambda key: (key[2], key[0]), reverse=not self.oldest_first)

    def _of_keys(self, keys: Sequence[RunKey]) -> Iterator[Sequence[StoredRun]]:
        for begin in range(0, len(keys), MAX_BATCH):
            some = keys[begin : begin + MAX_BATCH]
            times = [key[2] for key in some]
            conditions = [
                *self.prepared.conditions,
                ("r.partition_time BETWEEN %s AND %s", [min(times), max(times)]),
            ]
            yield select_runs(
                f"SELECT {COLUMNS}"
                " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
                " AS k(id, project_id, partition_time) JOIN trace_store_run r ON"
                f" {_KEY.format('k')}"
                f" WHERE {conjunction_sql(conditions)} ORDER BY {self.order('r')}",
                [
                    [key[0] for key in some],
                    [key[1] for key in some],
                    times,
                    self.prepared.workspace_id,
                    *parameters(conditions),
                ],
            )
