"""Filters of other scopes, as conditions on a run: its trace's root, any run of its trace."""

from __future__ import annotations

from uuid import UUID

from apps.trace_store.filters.nodes import Expression
from apps.trace_store.store.filtering.compiling import Compiled, compile_where

# A root's own time stands first in every dotted order of its trace.
_ROOT_TIME = "(left({t}.dotted_order, 15)::timestamp AT TIME ZONE 'UTC')"
_SKEW = "interval '1 day'"


def since_root(table: str, of: str) -> str:
    """Where the runs of a trace are placed, told by any run of it: so days are left out.

    Nothing of a trace is placed before its root; a clock may be a little off.
    """
    return f"{table}.placed_at >= {_ROOT_TIME.format(t=of)} - {_SKEW}"


def compile_where_root(
    workspace_id: UUID,
    expression: Expression,
    *,
    table: str = "tracing_run",
    as_settled: bool = False,
    one_by_one: bool = False,
) -> Compiled:
    """The runs whose trace's root matches.

    With `one_by_one`, the root of each run is looked up by its key: for a few runs in order. Else
    the planner may look at all roots instead, which serves many runs.
    """
    time = _ROOT_TIME.format(t=table)
    # By its whole key but for a time, so a root is one step in one index of a day or two.
    inner = compile_where(workspace_id, expression, table="root", as_settled=as_settled)
    return _exists(
        workspace_id,
        inner,
        "root",
        f"root.id = {table}.trace_id AND root.project_id = {table}.project_id"
        f" AND root.placed_at BETWEEN {time} - {_SKEW} AND {time} + {_SKEW}",
        one_by_one=one_by_one,
    )


def compile_where_any(
    workspace_id: UUID,
    expression: Expression,
    *,
    table: str = "tracing_run",
    as_settled: bool = False,
) -> Compiled:
    """The runs whose trace has a run that matches."""
    inner = compile_where(workspace_id, expression, table="anyone", as_settled=as_settled)
    return _exists(
        workspace_id,
        inner,
        "anyone",
        f"anyone.trace_id = {table}.trace_id AND anyone.project_id = {table}.project_id"
        f" AND {since_root('anyone', table)}",
    )


def _exists(
    workspace_id: UUID, inner: Compiled, table: str, related: str, *, one_by_one: bool = False
) -> Compiled:
    # A subquery with an offset is never made a join.
    text = (
        f"EXISTS (SELECT FROM tracing_run {table} WHERE {table}.workspace_id = %s"
        f" AND {related} AND ({inner.sql}){' OFFSET 0' if one_by_one else ''})"
    )
    # The index tells about the run itself, not about those beside it.
    return Compiled(text, (workspace_id, *inner.values), inner.is_exact, terms=None)
