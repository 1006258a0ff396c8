"""Reads start, receipt and first token times of traces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from apps.core.raw_sql import raw_cursor
from apps.trace_store.types import RunRow, TraceTimes


def trace_times(workspace_id: UUID, trace_ids: Collection[UUID]) -> dict[UUID, TraceTimes]:
    """Return for each trace the first and last start of its runs and the first receipt."""
    if not trace_ids:
        return {}
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT trace_id, min(coalesce(start_time, partition_time)),"
            " max(coalesce(start_time, partition_time)), min(received_at)"
            " FROM trace_store_run WHERE workspace_id = %s AND trace_id = ANY(%s) GROUP BY"
            " trace_id",
            [workspace_id, list(set(trace_ids))],
        )
        return {row[0]: TraceTimes(*row[1:]) for row in cursor}


def first_token_times(workspace_id: UUID, rows: Sequence[RunRow]) -> dict[UUID, datetime]:
    """Return by run id the first token time of the run or its descendants."""
    if not rows:
        return {}
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT project_id, dotted_order, first_token_time FROM trace_store_run"
            " WHERE workspace_id = %s AND trace_id = ANY(%s) AND first_token_time IS NOT NULL",
            [workspace_id, list({row.trace_id for row in rows})],
        )
        results = sorted((f"{project}:{order}.", moment) for project, order, moment in cursor)
    orders = [order for order, _ in results]
    result: dict[UUID, datetime] = {}
    for row in rows:
        # "/" follows "." in ASCII, so the range contains the run and all its descendants.
        place = f"{row.project_id}:{row.dotted_order}"
        within = results[bisect_left(orders, f"{place}.") : bisect_left(orders, f"{place}/")]
        if within:
            result[row.id] = min(moment for _, moment in within)
    return result


def turn_numbers(workspace_id: UUID, project_id: UUID, thread_key: str) -> dict[UUID, int]:
    """Return by trace the position of the turn in the thread, from 1."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT trace_id, row_number()"
            " OVER (ORDER BY coalesce(start_time, partition_time), trace_id) FROM trace_store_run"
            " WHERE workspace_id = %s AND project_id = %s AND parent_run_id IS NULL"
            " AND md5(thread_key) = md5(%s) AND thread_key = %s",
            [workspace_id, project_id, thread_key, thread_key],
        )
        return dict(cursor.fetchall())
