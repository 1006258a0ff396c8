"""What SQL leaves open about runs that may be meant: their payloads, their root, their trace."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from apps.trace_store.dotted_order import root_placed_at
from apps.trace_store.filters.nodes import Expression
from apps.trace_store.filters.reference import matches
from apps.trace_store.store.filtering import Compiled, compile_where
from apps.trace_store.store.filtering.subjects import needs_of, subjects_of
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rows import COLUMNS, SKEW, Stored, select
from apps.trace_store.store.summing import with_sums
from apps.trace_store.store.types import RunQuery, RunRow

_AT_ONCE = 200
"""Runs whose payloads are in memory together."""

Trace = tuple[UUID, UUID]
"""Project and trace."""


class Decider:
    """Says which of some runs a query means; each step is asked of what the one before left."""

    def __init__(self, workspace_id: UUID, query: RunQuery, where: Compiled | None) -> None:
        self.workspace_id = workspace_id
        self._open = query.where if where is not None and not where.is_exact else None
        # What SQL has decided about roots and traces is not asked again.
        self._open_root = self._undecided(query.where_root)
        self._open_any = query.where_any
        self.is_needed = any(
            one is not None for one in (self._open, self._open_root, self._open_any)
        )

    def _undecided(self, where: Expression | None) -> Expression | None:
        if where is None or compile_where(self.workspace_id, where).is_exact:
            return None
        return where

    def meant(self, rows: Sequence[Stored]) -> list[Stored]:
        """Those that the query means, in the order they came in."""
        kept = list(rows)
        if kept and self._open_root is not None:
            roots = self._with_such_root(kept, self._open_root)
            kept = [one for one in kept if _trace(one[0]) in roots]
        if kept and self._open is not None:
            kept = [one for some in _parts(kept) for one in self._true(self._open, some)]
        if kept and self._open_any is not None:
            traces = self._with_such_run(kept, self._open_any)
            kept = [one for one in kept if _trace(one[0]) in traces]
        return kept

    def _true(self, expression: Expression, rows: Sequence[Stored]) -> list[Stored]:
        """Those that the filter is true of, by the reference."""
        runs = with_sums(self.workspace_id, rows)
        subjects = subjects_of(self.workspace_id, runs, needs_of(expression))
        return [
            row for row, subject in zip(rows, subjects, strict=True) if matches(expression, subject)
        ]

    def _with_such_root(self, rows: Sequence[Stored], expression: Expression) -> set[Trace]:
        compiled = compile_where(self.workspace_id, expression, table="r")
        times = [root_placed_at(row.dotted_order) for row, _ in rows]
        statement = (
            f"SELECT {COLUMNS} FROM tracing_run r WHERE r.workspace_id = %s AND r.id = ANY(%s)"
            f" AND r.id = r.trace_id AND r.placed_at BETWEEN %s AND %s AND ({compiled.sql})"
        )
        values = [list({row.trace_id for row, _ in rows}), min(times) - SKEW, max(times) + SKEW]
        roots = select(statement, [self.workspace_id, *values, *compiled.values])
        return {_trace(row) for some in _parts(roots) for row, _ in self._true(expression, some)}

    def _with_such_run(self, rows: Sequence[Stored], expression: Expression) -> set[Trace]:
        compiled = compile_where(self.workspace_id, expression, table="r")
        # A trace has nothing before its root, and no end that would be known.
        since = min(root_placed_at(row.dotted_order) for row, _ in rows) - SKEW
        traces = list({row.trace_id for row, _ in rows})
        where = (
            "FROM tracing_run r WHERE r.workspace_id = %s AND r.trace_id = ANY(%s)"
            f" AND r.placed_at >= %s AND ({compiled.sql})"
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
        found: set[Trace] = set()
        for begin in range(0, len(traces), _AT_ONCE // 4):
            some = traces[begin : begin + _AT_ONCE // 4]
            values = [self.workspace_id, some, since, *compiled.values]
            perhaps = select(statement, values)
            for part in _parts(perhaps):
                undecided = [one for one in part if _trace(one[0]) not in found]
                found |= {_trace(row) for row, _ in self._true(expression, undecided)}
        return found


def _trace(row: RunRow) -> Trace:
    return row.project_id, row.trace_id


def _parts(rows: Sequence[Stored]) -> Iterator[Sequence[Stored]]:
    for begin in range(0, len(rows), _AT_ONCE):
        yield rows[begin : begin + _AT_ONCE]
