"""Changes to trees whose leaves arrive first: placeholder roots and moves of subtrees.

The keys of runs do not change here: a new ancestor changes only the beginning of a dotted order.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from apps.core.connections import raw_cursor, sql
from apps.trace_store.dotted_order import SEGMENT_LENGTH, format_segment
from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.postprocess import queue
from apps.trace_store.postgres.writing.run_keys import delete_keys
from apps.trace_store.types import (
    ChangedRun,
    PlaceholderRoot,
    StartCriterion,
    StartMatch,
    SubtreeMove,
)


def fetch_dotted_orders(
    workspace_id: UUID, run_ids: Collection[UUID], begin: datetime, end: datetime
) -> dict[UUID, str]:
    """Return the dotted orders of the stored runs with partition times in the range."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT id, dotted_order FROM trace_store_run WHERE workspace_id = %s AND id = ANY(%s)"
            " AND partition_time BETWEEN %s AND %s",
            [workspace_id, list(run_ids), begin, end],
        )
        return dict(cursor)


def find_by_start(
    workspace_id: UUID, criteria: Sequence[StartCriterion], tolerance: timedelta
) -> list[StartMatch]:
    """Find created runs by project, start and name, the nearest start first."""
    if not criteria:
        return []
    keys, projects, times, names = (list(column) for column in zip(*criteria, strict=True))
    statement = (
        "SELECT s.key, r.id, r.dotted_order, r.partition_time"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::text[])"
        " AS s(key, project, start_time, name)"
        " JOIN trace_store_run r ON r.workspace_id = %s AND r.project_id = s.project"
        " AND r.partition_time BETWEEN s.start_time - %s AND s.start_time + %s"
        " AND r.partition_time BETWEEN %s AND %s"
        " AND r.name = s.name AND r.id <> s.key AND r.is_created"
        " ORDER BY abs(extract(epoch FROM coalesce(r.start_time, r.partition_time)"
        " - s.start_time)), r.id"
    )
    values = [keys, projects, times, names, workspace_id, tolerance, tolerance]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, min(times) - tolerance, max(times) + tolerance])
        return [StartMatch(*row) for row in cursor]


def move_subtrees(
    workspace_id: UUID,
    moves: Sequence[SubtreeMove],
    *,
    old_trace_id: UUID,
    new_trace_id: UUID,
    begin: datetime,
    end: datetime,
) -> None:
    """Move subtrees of the old trace, possibly to another trace."""
    statement = (
        "UPDATE trace_store_run r SET dotted_order = m.new || substr(r.dotted_order, {length} + 1),"
        " trace_id = %s, parent_run_id = CASE WHEN r.id = m.run THEN m.parent"
        " WHEN r.parent_run_id = %s THEN %s ELSE r.parent_run_id END"
        " FROM unnest(%s::text[], %s::text[], %s::uuid[], %s::uuid[]) AS m(old, new, run, parent)"
        " WHERE r.workspace_id = %s AND r.trace_id = %s AND r.partition_time BETWEEN %s AND %s"
        " AND left(r.dotted_order, {length}) = m.old"
    )
    with raw_cursor() as cursor:
        # Move the runs with a new parent first, then the remaining runs below the old root.
        for length in (2 * SEGMENT_LENGTH + 1, SEGMENT_LENGTH):
            group = [move for move in moves if len(move.old_prefix) == length]
            if not group:
                continue
            cursor.execute(
                sql(statement.format(length=length)),
                [
                    new_trace_id,
                    old_trace_id,
                    new_trace_id,
                    [move.old_prefix for move in group],
                    [move.new_prefix for move in group],
                    [move.run_id for move in group],
                    [move.parent_run_id for move in group],
                    workspace_id,
                    old_trace_id,
                    begin,
                    end,
                ],
            )


def insert_placeholder(
    workspace_id: UUID, root: PlaceholderRoot, columns: Mapping[str, Any]
) -> None:
    """Insert a placeholder root with known values, so that the trace is visible at once."""
    partitions.ensure_partitions(root.partition_time)
    values = {
        "workspace_id": workspace_id,
        "id": root.run_id,
        "project_id": root.project_id,
        "partition_time": root.partition_time,
        "trace_id": root.run_id,
        "dotted_order": format_segment(root.partition_time, root.run_id),
        "is_created": False,
        "run_type": "chain",
        "metadata": msgspec.json.encode({"otel.root": "not received"}).decode(),
        **columns,
    }
    with raw_cursor() as cursor:
        cursor.execute(
            "INSERT INTO trace_store_run_key (workspace_id, id, project_id, partition_time)"
            " VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [workspace_id, root.run_id, root.project_id, root.partition_time],
        )
        if not cursor.rowcount:  # the root itself is stored
            return
        cursor.execute(
            sql(
                f"INSERT INTO trace_store_run ({', '.join(values)}, received_at)"
                f" VALUES ({', '.join(['%s'] * len(values))}, now())"
            ),
            list(values.values()),
        )
    _enqueue(workspace_id, root)


def delete_placeholder(workspace_id: UUID, root: PlaceholderRoot) -> None:
    """Delete the placeholder of a root that arrived."""
    with raw_cursor() as cursor:
        for table in partitions.TABLES:
            cursor.execute(
                sql(
                    f"DELETE FROM {table} WHERE workspace_id = %s AND id = %s"
                    " AND project_id = %s AND partition_time = %s"
                ),
                [workspace_id, root.run_id, root.project_id, root.partition_time],
            )
    delete_keys(workspace_id, [(root.run_id, root.project_id, root.partition_time)])
    _enqueue(workspace_id, root)


def end_placeholder(
    workspace_id: UUID, root: PlaceholderRoot, *, start_time: datetime, end_time: datetime
) -> bool:
    """Set start and end of a placeholder; return False if its root arrived meanwhile."""
    with raw_cursor() as cursor:
        cursor.execute(
            "UPDATE trace_store_run SET start_time = %s, end_time = %s WHERE workspace_id = %s"
            " AND id = %s AND project_id = %s AND partition_time = %s AND NOT is_created",
            [
                start_time,
                end_time,
                workspace_id,
                root.run_id,
                root.project_id,
                root.partition_time,
            ],
        )
        is_ended = cursor.rowcount == 1
    if is_ended:
        _enqueue(workspace_id, root)
    return is_ended


def _enqueue(workspace_id: UUID, root: PlaceholderRoot) -> None:
    changed_run = ChangedRun(root.run_id, root.project_id, root.partition_time, root.run_id)
    queue.enqueue(workspace_id, [changed_run])
