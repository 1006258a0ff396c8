"""Permanent removal of runs with the rows that the store keeps about them.

Each function removes a batch in the caller's transaction and returns the removed runs, whose other
related rows and files the caller removes.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.json import loads
from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.payload_storage import offloaded_paths_sql
from apps.trace_store.postgres.postprocess import queue
from apps.trace_store.postgres.writing import span_trees
from apps.trace_store.types import ChangedRun, DeletedRun

BATCH_SIZE = 2000
_KEY = ("workspace_id", "id", "project_id", "partition_time")


def delete_project_runs(
    workspace_id: UUID, project_id: UUID, *, limit: int = BATCH_SIZE
) -> list[DeletedRun]:
    """Some runs of the project, the oldest first."""
    return _delete_batch(
        workspace_id, "project_id = %s ORDER BY partition_time, id LIMIT %s", [project_id, limit]
    )


def delete_trace_runs(
    workspace_id: UUID, project_id: UUID, trace_ids: Collection[UUID], *, limit: int = BATCH_SIZE
) -> list[DeletedRun]:
    """Some runs of these traces as the project has them."""
    return _delete_batch(
        workspace_id,
        "trace_id = ANY(%s) AND project_id = %s ORDER BY partition_time, id LIMIT %s",
        [list(trace_ids), project_id, limit],
    )


def _delete_batch(workspace_id: UUID, which: str, values: Sequence[Any]) -> list[DeletedRun]:
    # The rows are taken first: of two that remove at once, each gets its own.
    select = (
        f"SELECT {', '.join(_KEY)}, trace_id, parent_run_id, attachments::text FROM"
        " trace_store_run r"
        f" WHERE workspace_id = %s AND {which} FOR UPDATE SKIP LOCKED"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(select), [workspace_id, *values], binary=True)
        removed = [
            DeletedRun(
                id=row[1],
                project_id=row[2],
                partition_time=row[3],
                trace_id=row[4],
                is_root=row[5] is None,
                files=[item["path"] for item in loads(row[6] or "{}").values()],
            )
            for row in cursor
        ]
    if removed:
        apart = _delete_rows(workspace_id, removed)
        span_trees.delete_trees(workspace_id, {run.trace_id for run in removed if run.is_root})
        removed = [replace(run, files=[*run.files, *apart.get(run.key, [])]) for run in removed]
        queue.enqueue(
            workspace_id,
            (
                ChangedRun(run.id, run.project_id, run.partition_time, run.trace_id)
                for run in removed
            ),
        )
    return removed


def _delete_rows(
    workspace_id: UUID, removed: Sequence[DeletedRun]
) -> dict[tuple[UUID, UUID, datetime], list[str]]:
    """Delete the rows; return the objects that their payloads were in, by run."""
    times = [run.partition_time for run in removed]
    keys = [[run.id for run in removed], [run.project_id for run in removed], times]
    result: dict[tuple[UUID, UUID, datetime], list[str]] = {}
    with raw_cursor() as cursor:
        for table in partitions.TABLES:
            paths = (
                offloaded_paths_sql("t")
                if table == "trace_store_run_payload"
                else "ARRAY[]::text[]"
            )
            cursor.execute(
                sql(
                    f"DELETE FROM {table} t"
                    " USING unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
                    " AS k(id, project_id, partition_time)"
                    " WHERE t.workspace_id = %s AND t.id = k.id AND t.project_id = k.project_id"
                    " AND t.partition_time = k.partition_time AND t.partition_time BETWEEN %s"
                    " AND %s"
                    f" RETURNING t.id, t.project_id, t.partition_time, {paths}"
                ),
                [*keys, workspace_id, min(times), max(times)],
            )
            result |= {(row[0], row[1], row[2]): row[3] for row in cursor if row[3]}
    return result
