"""Finds project and position of runs by id."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import UUID

from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.dotted_order import TreePosition
from apps.trace_store.types import RunLocation

_START_MARGIN = timedelta(days=1)
_TIME_ORDERED = 7


def estimate_start_range(run_ids: Collection[UUID]) -> tuple[datetime, datetime] | None:
    """The range in which the runs probably started, from the time in UUIDv7 ids."""
    if not run_ids or any(run_id.version != _TIME_ORDERED for run_id in run_ids):
        return None
    try:
        times = [datetime.fromtimestamp((item.int >> 80) / 1000, UTC) for item in run_ids]
        return min(times) - _START_MARGIN, max(times) + _START_MARGIN
    except (ValueError, OverflowError):
        return None


def locate_runs(workspace_id: UUID, run_ids: Collection[UUID]) -> dict[UUID, RunLocation]:
    """Locate the stored runs; of one id in several projects the one received last."""
    if not run_ids:
        return {}
    result: dict[UUID, RunLocation] = {}
    near = estimate_start_range(run_ids)
    if near is not None:
        result = _select_locations(workspace_id, run_ids, *near)
    missing = set(run_ids) - result.keys()
    if missing:
        result |= _select_locations(workspace_id, missing, None, None)
    return result


def _select_locations(
    workspace_id: UUID,
    run_ids: Collection[UUID],
    begin: datetime | None,
    end: datetime | None,
) -> dict[UUID, RunLocation]:
    between = "" if begin is None else "AND partition_time BETWEEN %s AND %s"
    values: list[object] = [workspace_id, list(run_ids)]
    values += [] if begin is None else [begin, end]
    statement = (
        "SELECT id, project_id, dotted_order, trace_id, parent_run_id, partition_time FROM"
        " trace_store_run"
        f" WHERE workspace_id = %s AND id = ANY(%s) {between} ORDER BY received_at"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        return {
            run_id: RunLocation(
                project_id, TreePosition(dotted_order, trace_id, parent_id, partition_time)
            )
            for run_id, project_id, dotted_order, trace_id, parent_id, partition_time in cursor
        }
