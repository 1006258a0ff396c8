"""Evaluates the filters that SQL cannot decide: on payloads, roots and traces."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.dotted_order import MAX_CLOCK_SKEW, root_time
from apps.trace_store.filters.nodes import Expression
from apps.trace_store.filters.reference import matches
from apps.trace_store.postgres.filtering import CompiledFilter, compile_where
from apps.trace_store.postgres.filtering.subjects import load_subjects, required_data
from apps.trace_store.postgres.reading.rows import COLUMNS, StoredRun, select_runs
from apps.trace_store.postgres.reading.trace_totals import with_trace_totals
from apps.trace_store.types import RunQuery, RunRow

_BATCH = 200
"""Limit of runs whose payloads are in memory at once."""

Trace = tuple[UUID, UUID]
"""Project and trace."""


class PostFilter:
    """Filters candidate runs by the open parts of a query, step by step."""

    def __init__(self, workspace_id: UUID, query: RunQuery, where: CompiledFilter | None) -> None:
        self.workspace_id = workspace_id
        self._open = query.where if where is not None and not where.is_exact else None
        # Filters on roots that SQL decides exactly are not evaluated again.
        self._open_root = self._undecided(query.where_root)
        self._open_any = query.where_any
        self.is_needed = any(
            item is not None for item in (self._open, self._open_root, self._open_any)
        )

    def _undecided(self, where: Expression | None) -> Expression | None:
        if where is None or compile_where(self.workspace_id, where).is_exact:
            return None
        return where

    def filter_runs(self, rows: Sequence[StoredRun]) -> list[StoredRun]:
        """Return the matching runs in their order."""
        candidates = list(rows)
        if candidates and self._open_root is not None:
            roots = self._traces_with_root(candidates, self._open_root)
            candidates = [item for item in candidates if _trace_key(item[0]) in roots]
        if candidates and self._open is not None:
            candidates = [
                item for batch in _batches(candidates) for item in self._match(self._open, batch)
            ]
        if candidates and self._open_any is not None:
            traces = self._traces_with_run(candidates, self._open_any)
            candidates = [item for item in candidates if _trace_key(item[0]) in traces]
        return candidates

    def _match(self, expression: Expression, rows: Sequence[StoredRun]) -> list[StoredRun]:
        """Return the runs that match by the reference evaluator."""
        runs = with_trace_totals(self.workspace_id, rows)
        subjects = load_subjects(self.workspace_id, runs, required_data(expression))
        # Each subject is dropped once it is evaluated, with the content that it has decoded.
        subjects.reverse()
        return [row for row in rows if matches(expression, subjects.pop())]

    def _traces_with_root(self, rows: Sequence[StoredRun], expression: Expression) -> set[Trace]:
        compiled = compile_where(self.workspace_id, expression, table="r")
        times = [root_time(row.dotted_order) for row, _ in rows]
        statement = (
            f"SELECT {COLUMNS} FROM trace_store_run r WHERE r.workspace_id = %s AND r.id = ANY(%s)"
            f" AND r.id = r.trace_id AND r.partition_time BETWEEN %s AND %s AND ({compiled.sql})"
        )
        values = [
            list({row.trace_id for row, _ in rows}),
            min(times) - MAX_CLOCK_SKEW,
            max(times) + MAX_CLOCK_SKEW,
        ]
        roots = select_runs(statement, [self.workspace_id, *values, *compiled.values])
        return {
            _trace_key(row)
            for batch in _batches(roots)
            for row, _ in self._match(expression, batch)
        }

    def _traces_with_run(self, rows: Sequence[StoredRun], expression: Expression) -> set[Trace]:
        compiled = compile_where(self.workspace_id, expression, table="r")
        # No run precedes its root; the end of a trace is unknown.
        since = min(root_time(row.dotted_order) for row, _ in rows) - MAX_CLOCK_SKEW
        traces = list({row.trace_id for row, _ in rows})
        where = (
            "FROM trace_store_run r WHERE r.workspace_id = %s AND r.trace_id = ANY(%s)"
            f" AND r.partition_time >= %s AND ({compiled.sql})"
        )
        if compiled.is_exact:
            with raw_cursor() as cursor:
                cursor.execute(
                    sql(f"SELECT DISTINCT r.project_id, r.trace_id {where}"),
                    [self.workspace_id, traces, since, *compiled.values],
                    binary=True,
                )
                return {(row[0], row[1]) for row in cursor}
        statement = f"SELECT {COLUMNS} {where}"
        results: set[Trace] = set()
        for begin in range(0, len(traces), _BATCH // 4):
            batch = traces[begin : begin + _BATCH // 4]
            values = [self.workspace_id, batch, since, *compiled.values]
            candidates = select_runs(statement, values)
            for part in _batches(candidates):
                undecided = [item for item in part if _trace_key(item[0]) not in results]
                results |= {_trace_key(row) for row, _ in self._match(expression, undecided)}
        return results


def _trace_key(row: RunRow) -> Trace:
    return row.project_id, row.trace_id


def _batches(rows: Sequence[StoredRun]) -> Iterator[Sequence[StoredRun]]:
    for begin in range(0, len(rows), _BATCH):
        yield rows[begin : begin + _BATCH]
