"""Reads runs by key, id or trace."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from apps.trace_store.postgres.payload_storage import with_payloads
from apps.trace_store.postgres.reading.locations import (
    estimate_start_range,
    find_stored_range,
)
from apps.trace_store.postgres.reading.pending_deletions import exclude_deleted
from apps.trace_store.postgres.reading.rows import COLUMNS, StoredRun, select_runs
from apps.trace_store.postgres.reading.trace_totals import with_totals_of_trace, with_trace_totals
from apps.trace_store.protocol import ALL_PAYLOADS
from apps.trace_store.types import Payload, RunDetail, RunKey, RunRow


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
    return with_payloads([row for row, _ in rows], payloads, lazily=True)


def fetch_rows(workspace_id: UUID, run_ids: Collection[UUID]) -> list[RunRow]:
    """Return the stored runs with these ids in all projects, without totals of descendants."""
    if not run_ids:
        return []
    statement = (
        f"SELECT {COLUMNS} FROM trace_store_run r WHERE r.workspace_id = %s AND r.id = ANY(%s)"
        " AND r.partition_time BETWEEN %s AND %s"
    )
    rows: list[RunRow] = []
    missing = set(run_ids)
    for find_range in (estimate_start_range, partial(find_stored_range, workspace_id)):
        if missing and (time_range := find_range(missing)):
            values = [workspace_id, list(missing), *time_range]
            rows += [row for row, _ in select_runs(statement, values)]
            missing -= {row.id for row in rows}
    return rows


def fetch_run(
    workspace_id: UUID,
    run_id: UUID,
    *,
    project_id: UUID | None = None,
    payloads: Collection[Payload] = ALL_PAYLOADS,
) -> RunDetail | None:
    """Return the run; without `project_id`, the newest one if several projects have that id."""
    not_deleted, deletion_values = exclude_deleted(workspace_id)
    where = f"r.workspace_id = %s AND r.id = %s AND {not_deleted}"
    values = [workspace_id, run_id, *deletion_values]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    statement = (
        f"SELECT {COLUMNS} FROM trace_store_run r WHERE {where}"
        " AND r.partition_time BETWEEN %s AND %s ORDER BY r.received_at DESC LIMIT 1"
    )
    # A UUIDv7 saves the lookup of its key.
    for find_range in (estimate_start_range, partial(find_stored_range, workspace_id)):
        if (time_range := find_range([run_id])) and (
            rows := select_runs(statement, [*values, *time_range])
        ):
            return with_payloads(with_trace_totals(workspace_id, rows), payloads)[0]
    return None


def fetch_trace(
    workspace_id: UUID, trace_id: UUID, *, project_id: UUID | None = None
) -> list[RunRow]:
    """Return all runs of the trace, depth first, parents before children."""
    not_deleted, deletion_values = exclude_deleted(workspace_id)
    where = f"r.workspace_id = %s AND r.trace_id = %s AND {not_deleted}"
    values = [workspace_id, trace_id, *deletion_values]
    if project_id is not None:
        where += " AND r.project_id = %s"
        values.append(project_id)
    rows: list[StoredRun] = []
    if time_range := estimate_start_range([trace_id]):
        # No run of a trace has an earlier partition time than its root.
        since: list[Any] = [*values, time_range[0]]
        rows = select_runs(
            f"SELECT {COLUMNS} FROM trace_store_run r WHERE {where} AND r.partition_time >= %s",
            since,
        )
    if not any(row.is_root for row, _ in rows):
        rows = select_runs(f"SELECT {COLUMNS} FROM trace_store_run r WHERE {where}", values)
    # Sort in Python: the server would sort whole rows, possibly on disk.
    rows.sort(key=lambda stored_run: stored_run[0].dotted_order)
    return with_totals_of_trace(rows)
