"""The sums that runs show: settled ones where they stand, live ones where a trace just changed."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

from apps.tracing.dotted_order import root_placed_at
from apps.tracing.store.raw import raw_cursor, sql
from apps.tracing.store.rows import SKEW, USAGE, Stored, usage
from apps.tracing.store.totals import N, Source, Totals
from apps.tracing.store.types import RunRow, Usage


def with_sums(workspace_id: UUID, rows: Sequence[Stored]) -> list[RunRow]:
    """The runs as they are shown, one of their traces or many."""
    unsettled = unsettled_traces(workspace_id, {row.trace_id for row, _ in rows})
    live = [row for row, _ in rows if row.trace_id in unsettled and not row.is_model_call]
    totals = _totals(workspace_id, live) if live else None
    return [
        _summed(row, totals.below(_tree_key(row.project_id, row.dotted_order)))
        if totals is not None and row.trace_id in unsettled
        else _summed(row, sums)
        for row, sums in rows
    ]


def with_sums_of_whole(rows: Sequence[Stored]) -> list[RunRow]:
    """All runs of a trace as they are shown, by nothing but themselves."""
    totals = Totals(
        [
            Source(_tree_key(row.project_id, row.dotted_order), row.is_model_call, row.usage)
            for row, _ in rows
            if row.usage.is_known
        ]
    )
    return [
        _summed(row, totals.below(_tree_key(row.project_id, row.dotted_order))) for row, _ in rows
    ]


def unsettled_traces(workspace_id: UUID, trace_ids: Collection[UUID]) -> set[UUID]:
    """Those of the traces of which something came that is not settled yet."""
    if not trace_ids:
        return set()
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT t FROM tracing_unsettled u CROSS JOIN unnest(u.trace_ids) AS t"
            " WHERE u.workspace_id = %s AND t = ANY(%s::uuid[])",
            [workspace_id, list(trace_ids)],
            binary=True,
        )
        return {row[0] for row in cursor}


def _totals(workspace_id: UUID, rows: Sequence[RunRow]) -> Totals:
    """The sums of the traces of these runs, from all their runs that say something."""
    statement = (
        f"SELECT r.project_id, r.dotted_order, r.run_type, {USAGE} FROM tracing_run r"
        " WHERE r.workspace_id = %s AND r.trace_id = ANY(%s) AND r.placed_at >= %s"
        " AND (r.total_tokens IS NOT NULL OR r.total_cost IS NOT NULL)"
    )
    # Nothing of a trace stands before its root in the dotted order; a clock may be a little off.
    since = min(root_placed_at(row.dotted_order) for row in rows)
    values = [workspace_id, list({row.trace_id for row in rows}), since - SKEW]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        return Totals(
            [Source(_tree_key(row[0], row[1]), row[2] == "llm", usage(row[3:])) for row in cursor]
        )


def _tree_key(project_id: UUID, dotted_order: str) -> str:
    """Two projects may hold the same trace."""
    return f"{project_id}:{dotted_order}"


def _summed(row: RunRow, below: Usage | None) -> RunRow:
    if below is None or row.is_model_call:
        return row
    own = row.usage
    return replace(
        row,
        usage=Usage(
            prompt_tokens=_first(below.prompt_tokens, own.prompt_tokens),
            completion_tokens=_first(below.completion_tokens, own.completion_tokens),
            total_tokens=_first(below.total_tokens, own.total_tokens),
            prompt_cost=_first(below.prompt_cost, own.prompt_cost),
            completion_cost=_first(below.completion_cost, own.completion_cost),
            total_cost=_first(below.total_cost, own.total_cost),
        ),
    )


def _first(below: N | None, own: N | None) -> N | None:
    return own if below is None else below
