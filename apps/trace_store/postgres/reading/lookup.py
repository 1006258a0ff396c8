"""Runs by what identifies them: their whole keys, their id, their trace."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

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
    """Those of the runs that are there, in no order, with what they say themselves: no sums."""
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
    """The run; the newest one when several projects have that id and none is named."""
    shown, given_shown = exclude_deleted(workspace_id)
    where = f"r.workspace_id = %s AND r.id = %s AND {shown}"
    values = [workspace_id, run_id, *given_shown]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    # Few days first: to look into all of them costs a hundred times as much.
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
    """All runs of the trace, depth first, parents before children."""
    shown, given_shown = exclude_deleted(workspace_id)
    where = f"r.workspace_id = %s AND r.trace_id = %s AND {shown}"
    values = [workspace_id, trace_id, *given_shown]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    rows: list[StoredRun] = []
    if days := estimate_start_range([trace_id]):
        # Nothing of a trace is placed before its root was made.
        since: list[Any] = [*values, days[0]]
        rows = select_runs(
            f"SELECT {COLUMNS} FROM trace_store_run r WHERE {where} AND r.partition_time >= %s",
            since,
        )
    if not any(row.is_root for row, _ in rows):
        rows = select_runs(f"SELECT {COLUMNS} FROM trace_store_run r WHERE {where}", values)
    # Sorted here: the server would sort whole rows, on disk when there are many.
    rows.sort(key=lambda one: one[0].dotted_order)
    return with_totals_of_trace(rows)
