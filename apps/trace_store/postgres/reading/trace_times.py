"""Reads start, receipt and first token times of traces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.trace_store.types import RunRow, TraceTimes


def fetch_trace_times(workspace_id: UUID, trace_ids: Collection[UUID]) -> dict[UUID, TraceTimes]:
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


def fetch_first_token_times(workspace_id: UUID, rows: Sequence[RunRow]) -> dict[UUID, datetime]:
    """Return the earliest first token time of each run and its descendants, by run id."""
    if not rows:
        return {}
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT project_id, dotted_order, first_token_time FROM trace_store_run"
            " WHERE workspace_id = %s AND trace_id = ANY(%s) AND first_token_time IS NOT NULL",
            [workspace_id, list({row.trace_id for row in rows})],
        )
        token_times = sorted(
            (f"{project}:{order}.", token_time) for project, order, token_time in cursor
        )
    keys = [key for key, _ in token_times]
    result: dict[UUID, datetime] = {}
    for row in rows:
        # "/" follows "." in ASCII, so the range contains the run and all its descendants.
        key = f"{row.project_id}:{row.dotted_order}"
        subtree = token_times[bisect_left(keys, f"{key}.") : bisect_left(keys, f"{key}/")]
        if subtree:
            result[row.id] = min(token_time for _, token_time in subtree)
    return result


def fetch_turn_numbers(workspace_id: UUID, project_id: UUID, thread_key: str) -> dict[UUID, int]:
    """Return the number of each turn in the thread, from 1, by trace id."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT trace_id, row_number()"
            " OVER (ORDER BY coalesce(start_time, partition_time), trace_id) FROM trace_store_run"
            " WHERE workspace_id = %s AND project_id = %s AND parent_run_id IS NULL"
            " AND md5(thread_key) = md5(%s) AND thread_key = %s",
            [workspace_id, project_id, thread_key, thread_key],
        )
        return dict(cursor.fetchall())
