"""The three filters of a query, whose scopes are the run, its root and its whole trace."""

# ruff: noqa: S608  (statements are made of this package's own names; values go beside them)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.tracing.dotted_order import root_placed_at
from apps.tracing.filters.nodes import Expression
from apps.tracing.filters.reference import matches
from apps.tracing.filters.writing import all_of
from apps.tracing.store.filtering.compiling import Compiled, compile_where
from apps.tracing.store.filtering.subjects import needs_of, subjects_of
from apps.tracing.store.filtering.terms import Terms
from apps.tracing.store.rows import COLUMNS, SKEW, select
from apps.tracing.store.summing import with_sums
from apps.tracing.store.types import RunQuery, RunRow

_AT_ONCE = 200
_SKEW = "interval '1 day'"
# The root's own time stands first in every dotted order of its trace.
_ROOT_TIME = "(left({t}.dotted_order, 15)::timestamp AT TIME ZONE 'UTC')"

Trace = tuple[UUID, UUID]
"""Project and trace."""


@dataclass(frozen=True, slots=True)
class QueryFilter:
    """What a query's filters ask of a run, in SQL and beyond."""

    workspace_id: UUID
    conditions: Sequence[tuple[str, Sequence[Any]]]
    """On `tracing_run`; all of them. What they leave out does not match."""
    terms: Terms | None
    """What the index must say of the run itself: see `Compiled.terms`."""
    undecided: Expression | None
    undecided_root: Expression | None
    undecided_any: Expression | None

    @property
    def is_exact(self) -> bool:
        """Whether the conditions decide alone."""
        return self.undecided is self.undecided_root is self.undecided_any is None

    def kept(self, rows: Sequence[RunRow]) -> list[RunRow]:
        """Of rows that meet the conditions, with their sums, those that match; in their order."""
        found = list(rows)
        if self.undecided is not None:
            found = _matching(self.workspace_id, self.undecided, found)
        if found and self.undecided_root is not None:
            traces = _rooted(self.workspace_id, self.undecided_root, found)
            found = [row for row in found if (row.project_id, row.trace_id) in traces]
        if found and self.undecided_any is not None:
            traces = _with_one(self.workspace_id, self.undecided_any, found)
            found = [row for row in found if (row.project_id, row.trace_id) in traces]
        return found


def filter_of(workspace_id: UUID, query: RunQuery, *, table: str) -> QueryFilter:
    """The filters of the query, over an alias of `tracing_run`."""
    where, where_root = query.where, query.where_root
    if query.is_root:  # then the run is the root
        where, where_root = all_of([where, where_root]), None
    conditions: list[tuple[str, Sequence[Any]]] = []
    own = root = anyone = None
    if where is not None:
        own = compile_where(workspace_id, where, table=table)
        conditions.append((own.sql, own.values))
    if where_root is not None:
        root = compile_where(workspace_id, where_root, table="root")
        conditions.append(_exists(root, workspace_id, "root", _is_root_of(table)))
    if query.where_any is not None:
        anyone = compile_where(workspace_id, query.where_any, table="anyone")
        conditions.append(_exists(anyone, workspace_id, "anyone", _is_in_trace_of(table)))
    return QueryFilter(
        workspace_id=workspace_id,
        conditions=conditions,
        terms=None if own is None else own.terms,
        undecided=where if own and not own.is_exact else None,
        undecided_root=where_root if root and not root.is_exact else None,
        undecided_any=query.where_any if anyone and not anyone.is_exact else None,
    )


def _exists(
    compiled: Compiled, workspace_id: UUID, table: str, related: str
) -> tuple[str, Sequence[Any]]:
    text = (
        f"EXISTS (SELECT FROM tracing_run {table} WHERE {table}.workspace_id = %s"
        f" AND {related} AND ({compiled.sql}))"
    )
    return text, [workspace_id, *compiled.values]


def _is_root_of(table: str) -> str:
    time = _ROOT_TIME.format(t=table)
    return (
        f"root.id = {table}.trace_id AND root.project_id = {table}.project_id"
        f" AND root.placed_at BETWEEN {time} - {_SKEW} AND {time} + {_SKEW}"
    )


def _is_in_trace_of(table: str) -> str:
    # Nothing of a trace is placed before its root; a clock may be a little off.
    return (
        f"anyone.trace_id = {table}.trace_id AND anyone.project_id = {table}.project_id"
        f" AND anyone.placed_at >= {_ROOT_TIME.format(t=table)} - {_SKEW}"
    )


def _matching(workspace_id: UUID, expression: Expression, rows: Sequence[RunRow]) -> list[RunRow]:
    needs = needs_of(expression)
    return [
        subject.run
        for part in _parts(rows)
        for subject in subjects_of(workspace_id, part, needs)
        if matches(expression, subject)
    ]


def _rooted(workspace_id: UUID, expression: Expression, rows: Sequence[RunRow]) -> set[Trace]:
    """The traces of these runs whose roots match."""
    times = [root_placed_at(row.dotted_order) for row in rows]
    statement = (
        f"SELECT {COLUMNS} FROM tracing_run r WHERE r.workspace_id = %s AND r.id = ANY(%s)"
        " AND r.project_id = ANY(%s) AND r.placed_at BETWEEN %s AND %s"
    )
    traces = list({row.trace_id for row in rows})
    projects = list({row.project_id for row in rows})
    values = [workspace_id, traces, projects, min(times) - SKEW, max(times) + SKEW]
    roots = with_sums(workspace_id, select(statement, values))
    found = _matching(workspace_id, expression, roots)
    return {(row.project_id, row.trace_id) for row in found}


def _with_one(workspace_id: UUID, expression: Expression, rows: Sequence[RunRow]) -> set[Trace]:
    """The traces of these runs that have a run that matches."""
    compiled = compile_where(workspace_id, expression, table="r")
    statement = (
        f"SELECT {COLUMNS} FROM tracing_run r WHERE r.workspace_id = %s AND r.trace_id = ANY(%s)"
        f" AND r.project_id = ANY(%s) AND r.placed_at >= %s AND ({compiled.sql})"
    )
    found: set[Trace] = set()
    # Few traces at a time: one may have thousands of runs.
    for part in _parts(sorted(rows, key=lambda row: row.trace_id), size=20):
        since = min(root_placed_at(row.dotted_order) for row in part) - SKEW
        traces = list({row.trace_id for row in part})
        projects = list({row.project_id for row in part})
        values = [workspace_id, traces, projects, since, *compiled.values]
        candidates = with_sums(workspace_id, select(statement, values))
        for batch in _parts(candidates):
            left = [row for row in batch if (row.project_id, row.trace_id) not in found]
            found |= {
                (row.project_id, row.trace_id) for row in _matching(workspace_id, expression, left)
            }
    return found


def _parts(rows: Sequence[RunRow], size: int = _AT_ONCE) -> Iterator[Sequence[RunRow]]:
    for at in range(0, len(rows), size):
        yield rows[at : at + size]
