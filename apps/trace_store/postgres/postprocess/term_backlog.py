"""Indexes runs again whose terms an earlier version wrote, the newest of each project first."""

from __future__ import annotations

import time

from django.db import transaction

from apps.core.connections import raw_cursor
from apps.trace_store.postgres.postprocess import queue, term_index

_BATCH_RUNS = 200


def index_backlog(seconds: float) -> int:
    """Index runs again until none is left or time is up; return their number."""
    deadline, indexed = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        with transaction.atomic():
            result = _index_batch()
        if result is None:
            break
        indexed += result
    return indexed


def _index_batch() -> int | None:
    """Index the next runs of a project; return their number, None if no project is left."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT workspace_id, project_id, partition_time, id FROM trace_store_term_backlog"
            " ORDER BY partition_time DESC LIMIT 1 FOR UPDATE SKIP LOCKED",
            binary=True,
        )
        row = cursor.fetchone()
        if row is None:
            return None
        workspace_id, project_id, *_ = row
        cursor.execute(
            "SELECT id, project_id, partition_time FROM trace_store_run_terms"
            " WHERE workspace_id = %s AND project_id = %s AND (partition_time, id) < (%s, %s)"
            " ORDER BY partition_time DESC, id DESC LIMIT %s",
            [*row, _BATCH_RUNS],
            binary=True,
        )
        keys = cursor.fetchall()
        queue.lock_workspace(workspace_id, wait=True)
        term_index.index_keys(workspace_id, keys)
        if keys:
            last_id, _, last_time = keys[-1]
            cursor.execute(
                "UPDATE trace_store_term_backlog SET partition_time = %s, id = %s"
                " WHERE workspace_id = %s AND project_id = %s",
                [last_time, last_id, workspace_id, project_id],
            )
        else:
            cursor.execute(
                "DELETE FROM trace_store_term_backlog WHERE workspace_id = %s AND project_id = %s",
                [workspace_id, project_id],
            )
        return len(keys)
