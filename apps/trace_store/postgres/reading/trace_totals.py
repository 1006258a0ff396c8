"""Adds usage totals to runs: stored totals, or current ones for traces that have pending runs."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.dotted_order import MAX_CLOCK_SKEW, root_time
from apps.trace_store.postgres.reading.rows import (
    SUMS,
    USAGE,
    StoredRun,
    usage_from_row,
)
from apps.trace_store.postgres.usage_totals import Amount, UsageSource, UsageTotals
from apps.trace_store.types import RunRow, Usage


def with_trace_totals(workspace_id: UUID, rows: Sequence[StoredRun]) -> list[RunRow]:
    """Return the runs with the totals of their descendants."""
    parents = [row for row, _ in rows if not row.is_model_call]
    if not parents:
        return [row for row, _ in rows]
    pending, sums = _current_totals(workspace_id, parents)
    stale = [row for row in parents if row.trace_id in pending]
    totals = _load_totals(workspace_id, stale) if stale else None
    return [
        _with_total(row, totals.total_below(_tree_key(row.project_id, row.dotted_order)))
        if totals is not None and row.trace_id in pending
        else _with_total(row, sums.get((row.project_id, row.id), stored_total))
        for row, stored_total in rows
    ]


def _current_totals(
    workspace_id: UUID, rows: Sequence[RunRow]
) -> tuple[set[UUID], dict[tuple[UUID, UUID], Usage | None]]:
    """Return the traces with pending runs, and the stored totals of the runs.

    One statement reads both, because two would miss a trace that is processed in between.
    """
    times = [row.partition_time for row in rows]
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "WITH pending AS MATERIALIZED ("
                " SELECT DISTINCT t FROM trace_store_pending_run u CROSS JOIN"
                " unnest(u.trace_ids) AS t"
                " WHERE u.workspace_id = %s AND t = ANY(%s::uuid[]))"
                " SELECT r.project_id, r.id, r.trace_id,"
                f" r.trace_id IN (SELECT t FROM pending), {SUMS} FROM trace_store_run r"
                " WHERE r.workspace_id = %s AND r.id = ANY(%s::uuid[])"
                " AND r.partition_time BETWEEN %s AND %s"
            ),
            [
                *(workspace_id, list({row.trace_id for row in rows})),
                *(workspace_id, [row.id for row in rows], min(times), max(times)),
            ],
            binary=True,
        )
        pending, sums = set(), {}
        for project_id, run_id, trace_id, is_pending, *amounts in cursor.fetchall():
            if is_pending:
                pending.add(trace_id)
            is_summed = any(amount is not None for amount in amounts)
            sums[project_id, run_id] = usage_from_row([*amounts, None]) if is_summed else None
    return pending, sums


def with_totals_of_trace(rows: Sequence[StoredRun]) -> list[RunRow]:
    """Return all runs of a trace with totals computed from these runs alone."""
    totals = UsageTotals(
        [
            UsageSource(_tree_key(row.project_id, row.dotted_order), row.is_model_call, row.usage)
            for row, _ in rows
            if row.usage.is_known
        ]
    )
    return [
        _with_total(row, totals.total_below(_tree_key(row.project_id, row.dotted_order)))
        for row, _ in rows
    ]


def _load_totals(workspace_id: UUID, rows: Sequence[RunRow]) -> UsageTotals:
    """Compute the totals of the traces of these runs from all runs with usage."""
    statement = (
        f"SELECT r.project_id, r.dotted_order, r.run_type, {USAGE} FROM trace_store_run r"
        " WHERE r.workspace_id = %s AND r.trace_id = ANY(%s) AND r.partition_time >= %s"
        " AND (r.total_tokens IS NOT NULL OR r.total_cost IS NOT NULL)"
    )
    # No run precedes its root in the dotted order, except for clock skew.
    since = min(root_time(row.dotted_order) for row in rows)
    values = [workspace_id, list({row.trace_id for row in rows}), since - MAX_CLOCK_SKEW]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        return UsageTotals(
            [
                UsageSource(_tree_key(row[0], row[1]), row[2] == "llm", usage_from_row(row[3:]))
                for row in cursor
            ]
        )


def _tree_key(project_id: UUID, dotted_order: str) -> str:
    """A key that is unique per project, because two projects may hold the same trace."""
    return f"{project_id}:{dotted_order}"


def _with_total(row: RunRow, below: Usage | None) -> RunRow:
    if below is None or row.is_model_call:
        return row
    reported = row.usage
    return replace(
        row,
        usage=Usage(
            prompt_tokens=_first_known(below.prompt_tokens, reported.prompt_tokens),
            completion_tokens=_first_known(below.completion_tokens, reported.completion_tokens),
            total_tokens=_first_known(below.total_tokens, reported.total_tokens),
            prompt_cost=_first_known(below.prompt_cost, reported.prompt_cost),
            completion_cost=_first_known(below.completion_cost, reported.completion_cost),
            total_cost=_first_known(below.total_cost, reported.total_cost),
        ),
    )


def _first_known(below: Amount | None, reported: Amount | None) -> Amount | None:
    return reported if below is None else below
