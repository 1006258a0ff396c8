"""Tracks the intervals with rollups, and whether their rollups are current.

Post-processing marks the intervals that a changed run affects; `rollups.build` rebuilds them. An
interval is clean if its change count equals its built count and it has no pending runs: its rows
then represent its runs exactly. The metrics of all other intervals are computed from the runs.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.dotted_order import segment_times
from apps.trace_store.postgres.rollups.intervals import EARLIEST_TIME, LATEST_TIME, Resolution
from apps.trace_store.types import ChangedRun

ProjectQuarter = tuple[UUID, datetime]
"""A project and the start of a quarter hour."""
_MAX_CALL_DURATION = timedelta(hours=6)
_MAX_EXACT_RUNS = 20_000

_MARK_DIRTY = """
INSERT INTO trace_store_rollup_interval AS s
    (workspace_id, project_id, resolution, begins_at, change_count, built_count, changed_at)
SELECT %s, m.project_id, m.resolution, m.begins_at, 1, 0, clock_timestamp()
FROM unnest(%s::uuid[], %s::int2[], %s::timestamptz[]) AS m(project_id, resolution, begins_at)
ORDER BY m.project_id, m.resolution, m.begins_at
ON CONFLICT (workspace_id, project_id, resolution, begins_at) DO UPDATE SET
    change_count = s.change_count + 1,
    changed_at = excluded.changed_at
"""


def mark_changed_intervals(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Mark the intervals of the changed runs and of their ancestors."""
    keys = [(run.run_id, run.project_id, run.partition_time) for run in changed_runs]
    mark_dirty(workspace_id, find_affected_quarters(workspace_id, keys))


def mark_dirty(workspace_id: UUID, quarters: Iterable[ProjectQuarter]) -> None:
    """Record in the caller's transaction that runs in these quarter hours changed."""
    intervals = sorted(
        {
            (project_id, int(resolution), resolution.floor(begin))
            for project_id, begin in quarters
            for resolution in Resolution
        }
    )
    if not intervals:
        return
    with raw_cursor() as cursor:
        cursor.execute(
            _MARK_DIRTY,
            [
                workspace_id,
                [interval[0] for interval in intervals],
                [interval[1] for interval in intervals],
                [interval[2] for interval in intervals],
            ],
        )


def find_affected_quarters(
    workspace_id: UUID, keys: Sequence[tuple[UUID, UUID, datetime]]
) -> set[ProjectQuarter]:
    """Return the quarter hours whose metrics depend on these runs: their own and their ancestors'.

    Tokens below a model call are not counted again, so all quarter hours of its duration are
    affected.
    """
    if not keys:
        return set()
    quarters = {
        (project_id, _floor_to_quarter(partition_time)) for _, project_id, partition_time in keys
    }
    times = [key[2] for key in keys]
    statement = (
        "SELECT r.project_id, r.dotted_order,"
        " CASE WHEN r.run_type = 'llm' THEN r.end_time END, r.partition_time"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id,"
        " partition_time)"
        " JOIN trace_store_run r ON r.workspace_id = %s AND r.id = k.id"
        " AND r.project_id = k.project_id AND r.partition_time = k.partition_time"
        " AND r.partition_time BETWEEN %s AND %s"
    )
    columns: list[Any] = [[key[0] for key in keys], [key[1] for key in keys], times]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*columns, workspace_id, min(times), max(times)])
        for project_id, dotted_order, ended_at, partition_time in cursor:
            for timestamp in segment_times(dotted_order):
                quarters.add((project_id, _floor_to_quarter(timestamp)))
            if ended_at is not None:
                last = min(ended_at, partition_time + _MAX_CALL_DURATION)
                timestamp = partition_time
                while (
                    timestamp := timestamp + Resolution.QUARTER.width
                ) < last + Resolution.QUARTER.width:
                    quarters.add((project_id, _floor_to_quarter(timestamp)))
    return quarters


def pending_quarters(workspace_id: UUID) -> set[ProjectQuarter]:
    """Return the quarter hours of pending runs, which are not marked yet.

    With very many pending runs, the quarter hours of their ancestors are left out: their counts are
    correct, but their tokens are those of the last post-processing.
    """
    statement = (
        "SELECT k.run_id, k.project_id, k.partition_time FROM trace_store_pending_run u,"
        " unnest(u.run_ids, u.project_ids, u.partition_time) AS k(run_id, project_id,"
        " partition_time)"
        " WHERE u.workspace_id = %s"
    )
    with raw_cursor() as cursor:
        cursor.execute(statement, [workspace_id], binary=True)
        keys = cursor.fetchall()
    if len(keys) <= _MAX_EXACT_RUNS:
        return find_affected_quarters(workspace_id, keys)
    return {
        (project_id, _floor_to_quarter(partition_time)) for _, project_id, partition_time in keys
    }


def delete_project(workspace_id: UUID, project_id: UUID) -> None:
    """Delete rollups and threads of a project that is being deleted."""
    with raw_cursor() as cursor:
        for table in ("trace_store_rollup_interval", "trace_store_rollup", "trace_store_thread"):
            cursor.execute(
                sql(f"DELETE FROM {table} WHERE workspace_id = %s AND project_id = %s"),
                [workspace_id, project_id],
            )


def _floor_to_quarter(timestamp: datetime) -> datetime:
    return Resolution.QUARTER.floor(min(max(timestamp, EARLIEST_TIME), LATEST_TIME))
