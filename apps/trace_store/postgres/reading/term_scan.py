"""Scans runs by the term index, merged with the runs that are not indexed yet."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import timedelta

from apps.core.connections import raw_cursor, sql
from apps.trace_store.postgres.filtering.terms import RequiredTerms
from apps.trace_store.postgres.reading import scan
from apps.trace_store.postgres.reading.prepared_query import Condition, query_labels
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
from apps.trace_store.postgres.reading.term_conditions import term_conditions
from apps.trace_store.types import RunKey

_MAX_WINDOW = timedelta(days=30)
"""The index results of a whole window are sorted, so windows are limited."""

_KEY = "r.workspace_id = %s AND r.id = {0}.id AND r.project_id = {0}.project_id"
_KEY += " AND r.partition_time = {0}.partition_time"


class TermScan(OrderedQuery):
    """Like `RunScan`, but reads the runs through the term index."""

    def scan_terms(self, terms: RequiredTerms, limit: int) -> Iterator[Sequence[StoredRun]]:
        """Yield runs in order: those from the term index and those that are not indexed yet.

        Pending runs are read first: a run that is processed in between is then found twice, not
        missed.
        """
        pending = self._pending_runs()
        pending_keys = set(pending)
        indexed = (
            row
            for rows in self._indexed(terms, limit)
            for row in rows
            if run_key(row) not in pending_keys
        )
        unindexed = (row for rows in self._read_by_keys(pending) for row in rows)
        merged = heapq.merge(indexed, unindexed, key=sort_key, reverse=not self.oldest_first)
        batch: list[StoredRun] = []
        size = limit
        for row in merged:
            batch.append(row)
            if len(batch) >= size:
                yield batch
                batch, size = [], min(2 * size, MAX_BATCH)
        yield batch

    def _indexed(self, terms: RequiredTerms, size: int) -> Iterator[Sequence[StoredRun]]:
        """Check the terms of the first runs, which finds frequent terms; then use the index."""
        conditions = term_conditions(
            self.prepared.workspace_id, terms, query_labels(self.prepared.query)
        )
        position = self.position
        if len(self.prepared.query.project_ids or ()) == 1:
            probe_end = self._probe_end()
            begin, end = self.prepared.since, self.range_end(position)
            if probe_end is not None and self.oldest_first:
                end = probe_end[0] + timedelta.resolution
            elif probe_end is not None:
                begin = probe_end[0]
            before_end = (
                []
                if probe_end is None
                else [self.compare_with_position(probe_end, "t", is_after=False)]
            )
            while rows := self._read_by_terms(
                conditions, (begin, end), before_end, position, size, reads_first_runs=True
            ):
                yield rows
                if len(rows) < size:
                    break
                position = sort_key(rows[-1])
            if probe_end is None:
                return
            position = probe_end
        for window in self.split_windows(_MAX_WINDOW, position):
            last_position = position
            while rows := self._read_by_terms(conditions, window, [], last_position, size):
                yield rows
                if len(rows) < size:
                    break
                last_position = sort_key(rows[-1])

    def _read_by_terms(
        self,
        term_conditions: Sequence[Condition],
        window: Window,
        extra_conditions: Sequence[Condition],
        position: SortKey | None,
        size: int,
        *,
        reads_first_runs: bool = False,
    ) -> list[StoredRun]:
        """Read runs with these terms in order, by the term index or through the first runs.

        The plan is forced, because the planner does not know how frequent terms are.
        """
        where: list[Condition] = [("t.workspace_id = %s", [self.prepared.workspace_id])]
        if self.prepared.query.project_ids is not None:
            where.append(self.project_condition("t"))
        where += [*self.range_conditions(window, position, "t"), *extra_conditions]
        inner, outer = (
            (where, term_conditions) if reads_first_runs else ([*where, *term_conditions], [])
        )
        run_conditions = [*self.prepared.conditions, *window_conditions(window, "r")]
        return select_runs(
            f"SELECT {COLUMNS} FROM (SELECT t.* FROM trace_store_run_terms t WHERE"
            f" {conjunction_sql(inner)}"
            f" ORDER BY {self.order_by('t')} OFFSET 0) t CROSS JOIN LATERAL"
            f" (SELECT r.* FROM trace_store_run r WHERE {_KEY.format('t')}"
            f" AND {conjunction_sql(run_conditions)} LIMIT 1) r"
            f" WHERE {conjunction_sql(outer)} ORDER BY {self.order_by('t')} LIMIT {size}",
            [
                *parameters(inner),
                self.prepared.workspace_id,
                *parameters(run_conditions),
                *parameters(outer),
            ],
        )

    def _probe_end(self) -> SortKey | None:
        """The position after the first `PROBED_RUNS` runs; None if there are no more."""
        where: list[Condition] = [
            ("t.workspace_id = %s", [self.prepared.workspace_id]),
            self.project_condition("t"),
            *self.range_conditions(
                (self.prepared.since, self.range_end(self.position)), self.position, "t"
            ),
        ]
        with raw_cursor() as cursor:
            cursor.execute(
                sql(
                    "SELECT t.partition_time, t.id FROM trace_store_run_terms t WHERE"
                    f" {conjunction_sql(where)}"
                    f" ORDER BY {self.order_by('t')} OFFSET {scan.PROBED_RUNS} LIMIT 1"
                ),
                parameters(where),
                binary=True,
            )
            return cursor.fetchone()

    def _pending_runs(self) -> list[RunKey]:
        """The runs that may not be indexed yet, in order."""
        prepared, (begin, end) = self.prepared, (self.prepared.since, self.range_end(self.position))
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

    def _read_by_keys(self, keys: Sequence[RunKey]) -> Iterator[Sequence[StoredRun]]:
        for begin in range(0, len(keys), MAX_BATCH):
            batch = keys[begin : begin + MAX_BATCH]
            times = [key[2] for key in batch]
            conditions = [
                *self.prepared.conditions,
                ("r.partition_time BETWEEN %s AND %s", [min(times), max(times)]),
            ]
            yield select_runs(
                f"SELECT {COLUMNS}"
                " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
                " AS k(id, project_id, partition_time) JOIN trace_store_run r ON"
                f" {_KEY.format('k')}"
                f" WHERE {conjunction_sql(conditions)} ORDER BY {self.order_by('r')}",
                [
                    [key[0] for key in batch],
                    [key[1] for key in batch],
                    times,
                    self.prepared.workspace_id,
                    *parameters(conditions),
                ],
            )
