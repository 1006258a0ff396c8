"""Finds project and position of runs by id."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.trace_store.dotted_order import TreePosition
from apps.trace_store.types import RunLocation

_START_MARGIN = timedelta(days=1)
_UUID7_VERSION = 7


def estimate_start_range(run_ids: Collection[UUID]) -> tuple[datetime, datetime] | None:
    """Estimate the range of start times from UUIDv7 ids; None if an id has another version."""
    if not run_ids or any(run_id.version != _UUID7_VERSION for run_id in run_ids):
        return None
    try:
        times = [datetime.fromtimestamp((item.int >> 80) / 1000, UTC) for item in run_ids]
        return min(times) - _START_MARGIN, max(times) + _START_MARGIN
    except (ValueError, OverflowError):
        return None


def locate_runs(workspace_id: UUID, run_ids: Collection[UUID]) -> dict[UUID, RunLocation]:
    """Locate the stored runs; if several projects have an id, the run received last."""
    if not run_ids:
        return {}
    result: dict[UUID, RunLocation] = {}
    time_range = estimate_start_range(run_ids)
    if time_range is not None:
        result = _select_locations(workspace_id, run_ids, *time_range)
    missing = set(run_ids) - result.keys()
    if missing and (stored_range := find_stored_range(workspace_id, missing)):
        result |= _select_locations(workspace_id, missing, *stored_range)
    return result


def find_stored_range(
    workspace_id: UUID, run_ids: Collection[UUID]
) -> tuple[datetime, datetime] | None:
    """Return the range of the runs' partition times; None if none of them is stored."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT min(partition_time), max(partition_time) FROM trace_store_run_key"
            " WHERE workspace_id = %s AND id = ANY(%s)",
            [workspace_id, list(run_ids)],
        )
        begin, end = cursor.fetchone() or (None, None)
    return None if begin is None or end is None else (begin, end)


def _select_locations(
    workspace_id: UUID,
    run_ids: Collection[UUID],
    begin: datetime,
    end: datetime,
) -> dict[UUID, RunLocation]:
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT id, project_id, dotted_order, trace_id, parent_run_id, partition_time FROM"
            " trace_store_run WHERE workspace_id = %s AND id = ANY(%s)"
            " AND partition_time BETWEEN %s AND %s ORDER BY received_at",
            [workspace_id, list(run_ids), begin, end],
        )
        return {
            run_id: RunLocation(
                project_id, TreePosition(dotted_order, trace_id, parent_id, partition_time)
            )
            for run_id, project_id, dotted_order, trace_id, parent_id, partition_time in cursor
        }
