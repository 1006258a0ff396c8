"""Rows of threads: the root runs of a project with one thread key are its turns.

Post-processing keeps a row per thread, so that an index finds the newest ones. Rows only order
threads; their metrics are read from the turns.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.types import ChangedRun

ThreadKey = tuple[UUID, str]
"""A project and a thread key."""
TURN = "r.thread_key IS NOT NULL AND r.parent_run_id IS NULL"

_KEYS = "unnest(%s::uuid[], %s::text[]) AS k(project_id, thread_key)"
_TURNS = (
    f"FROM {_KEYS} JOIN trace_store_run r ON r.project_id = k.project_id"
    " AND md5(r.thread_key) = md5(k.thread_key) AND r.thread_key = k.thread_key"
    f" WHERE r.workspace_id = %s AND {TURN}"
)
_STARTED = "coalesce(r.start_time, r.partition_time)"
_THREAD_SUMMARY = (
    f"SELECT k.project_id, k.thread_key, min({_STARTED}), max({_STARTED}),"
    " (array_agg(r.trace_id ORDER BY r.partition_time, r.id))[1],"
    " (array_agg(r.trace_id ORDER BY r.partition_time DESC, r.id DESC))[1]"
    f" {_TURNS} GROUP BY k.project_id, k.thread_key"
)


def update_thread_rows(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Update the rows of threads that the runs belong to or belonged to."""
    threads = find_threads(
        workspace_id, [(run.run_id, run.project_id, run.partition_time) for run in changed_runs]
    )
    threads |= _find_threads_of_traces(
        workspace_id, {(run.project_id, run.trace_id) for run in changed_runs}
    )
    if threads:
        _write_rows(workspace_id, sorted(threads))


def find_threads(workspace_id: UUID, keys: Sequence[tuple[UUID, UUID, datetime]]) -> set[ThreadKey]:
    """Return the threads of the runs that are turns."""
    if not keys:
        return set()
    times = [key[2] for key in keys]
    statement = (
        "SELECT DISTINCT r.project_id, r.thread_key"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id,"
        " partition_time)"
        " JOIN trace_store_run r ON r.workspace_id = %s AND r.id = k.id"
        " AND r.project_id = k.project_id AND r.partition_time = k.partition_time"
        f" AND r.partition_time BETWEEN %s AND %s WHERE {TURN}"
    )
    columns: list[Any] = [[key[0] for key in keys], [key[1] for key in keys], times]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*columns, workspace_id, min(times), max(times)])
        return {(row[0], row[1]) for row in cursor}


def _find_threads_of_traces(
    workspace_id: UUID, traces: Iterable[tuple[UUID, UUID]]
) -> set[ThreadKey]:
    """Return the threads whose first or last trace is one of these, even if it was removed."""
    trace_keys = list(traces)
    statement = (
        "SELECT t.project_id, t.thread_key"
        " FROM unnest(%s::uuid[], %s::uuid[]) AS k(project_id, trace_id)"
        " JOIN trace_store_thread t ON t.project_id = k.project_id AND t.{column} = k.trace_id"
        " WHERE t.workspace_id = %s"
    )
    union = " UNION ".join(
        statement.format(column=column) for column in ("first_trace_id", "last_trace_id")
    )
    values = [[item[0] for item in trace_keys], [item[1] for item in trace_keys], workspace_id]
    with raw_cursor() as cursor:
        cursor.execute(sql(union), [*values, *values])
        return {(row[0], row[1]) for row in cursor}


def _write_rows(workspace_id: UUID, threads: Sequence[ThreadKey]) -> None:
    keys = [[thread[0] for thread in threads], [thread[1] for thread in threads]]
    summary = _THREAD_SUMMARY.replace("SELECT k.", "SELECT %s::uuid, k.", 1)
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "INSERT INTO trace_store_thread (workspace_id, project_id, thread_key, first_start,"
                f" last_start, first_trace_id, last_trace_id) {summary} ORDER BY 2, 3"
                " ON CONFLICT (workspace_id, project_id, md5(thread_key)) DO UPDATE SET"
                " first_start = excluded.first_start, last_start = excluded.last_start,"
                " first_trace_id = excluded.first_trace_id, last_trace_id = excluded.last_trace_id"
                " RETURNING project_id, thread_key"
            ),
            [workspace_id, *keys, workspace_id],
        )
        remaining = {(row[0], row[1]) for row in cursor}
        removed = [thread for thread in threads if thread not in remaining]
        if removed:
            cursor.execute(
                sql(
                    f"DELETE FROM trace_store_thread t USING {_KEYS} WHERE t.workspace_id = %s"
                    " AND t.project_id = k.project_id AND t.thread_key = k.thread_key"
                    " AND md5(t.thread_key) = md5(k.thread_key)"
                ),
                [
                    [thread[0] for thread in removed],
                    [thread[1] for thread in removed],
                    workspace_id,
                ],
            )


def pending_threads(workspace_id: UUID, project_ids: Sequence[UUID]) -> list[tuple[Any, ...]]:
    """Return project, key, first and last start and trace of the threads of pending runs."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT k.run_id, k.project_id, k.partition_time FROM trace_store_pending_run u,"
            " unnest(u.run_ids, u.project_ids, u.partition_time) AS k(run_id, project_id,"
            " partition_time)"
            " WHERE u.workspace_id = %s AND k.project_id = ANY(%s)",
            [workspace_id, list(project_ids)],
        )
        threads = sorted(find_threads(workspace_id, cursor.fetchall()))
        if not threads:
            return []
        cursor.execute(
            sql(_THREAD_SUMMARY),
            [[thread[0] for thread in threads], [thread[1] for thread in threads], workspace_id],
        )
        return cursor.fetchall()
