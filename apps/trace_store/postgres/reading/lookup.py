"""Reads runs by key, id or trace."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.trace_store.postgres.payload_storage import with_payloads
from apps.trace_store.postgres.reading.locations import estimate_start_range
from apps.trace_store.postgres.reading.pending_deletions import exclude_deleted
from apps.trace_store.postgres.reading.rows import COLUMNS, StoredRun, select_runs
from apps.trace_store.postgres.reading.trace_totals import with_totals_of_trace, with_trace_totals
from apps.trace_store.types import Payload, RunDetail, RunKey, RunRow

_RECENT = timedelta(days=2)


def fetch_by_keys(
    workspace_id: UUID, keys: Sequence[RunKey], *, payloads: Collection[Payload]
) -> list[RunDetail]:
    """Return the runs with these keys in any order, without totals of descendants."""
    if not keys:
        return []
    times = [key[2] for key in keys]
    statement = (
        f"SELECT {COLUMNS}"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id,"
        " partition_time)"
        " JOIN trace_store_run r ON r.workspace_id = %s AND r.id = k.id"
        " AND r.project_id = k.project_id AND r.partition_time = k.partition_time"
        " WHERE r.partition_time BETWEEN %s AND %s"
    )
    columns = [[key[0] for key in keys], [key[1] for key in keys], times]
    rows = select_runs(statement, [*columns, workspace_id, min(times), max(times)])
    return with_payloads([row for row, _ in rows], payloads)


def fetch_run(
    workspace_id: UUID,
    run_id: UUID,
    *,
    project_id: UUID | None,
    payloads: Collection[Payload],
) -> RunDetail | None:
    """Return the run; without `project_id`, the newest one if several projects have that id."""
    shown, given_shown = exclude_deleted(workspace_id)
    where = f"r.workspace_id = %s AND r.id = %s AND {shown}"
    values = [workspace_id, run_id, *given_shown]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    # Try a few days first, because a scan of all partitions costs a hundred times as much.
    days = estimate_start_range([run_id]) or _recent_range()
    attempts: list[tuple[str, list[Any]]] = [
        (f"{where} AND r.partition_time BETWEEN %s AND %s", [*values, *days]),
        (where, [*values]),
    ]
    for condition, given in attempts:
        statement = (
            f"SELECT {COLUMNS} FROM trace_store_run r WHERE {condition}"
            " ORDER BY r.received_at DESC LIMIT 1"
        )
        if rows := select_runs(statement, given):
            return with_payloads(with_trace_totals(workspace_id, rows), payloads)[0]
    return None


def _recent_range() -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    return now - _RECENT, now + _RECENT


def fetch_trace(workspace_id: UUID, trace_id: UUID, *, project_id: UUID | None) -> list[RunRow]:
    """Return all runs of the trace, depth first, parents before children."""
    shown, given_shown = exclude_deleted(workspace_id)
    where = f"r.workspace_id = %s AND r.trace_id = %s AND {shown}"
    values = [workspace_id, trace_id, *given_shown]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    rows: list[StoredRun] = []
    if days := estimate_start_range([trace_id]):
        # No run of a trace has an earlier partition time than its root.
        since: list[Any] = [*values, days[0]]
        rows = select_runs(
            f"SELECT {COLUMNS} FROM trace_store_run r WHERE {where} AND r.partition_time >= %s",
            since,
        )
    if not any(row.is_root for row, _ in rows):
        rows = select_runs(f"SELECT {COLUMNS} FROM trace_store_run r WHERE {where}", values)
    # Sort in Python: the server would sort whole rows, possibly on disk.
    rows.sort(key=lambda result: result[0].dotted_order)
    return with_totals_of_trace(rows)
