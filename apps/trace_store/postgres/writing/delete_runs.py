"""Permanent removal of runs with all related rows and files.

Each function removes a batch in the caller's transaction. The same transaction lists the files in
`trace_store_pendingfiledeletion`; they are deleted after its commit, so a crash leaves no orphaned
file.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.db import transaction

from apps.core.connections import raw_cursor, sql
from apps.core.json import loads
from apps.trace_store.hooks import removal_statements
from apps.trace_store.models import PendingFileDeletion, RunCount
from apps.trace_store.postgres import partitions, run_counts
from apps.trace_store.postgres.payload_storage import offloaded_paths_sql
from apps.trace_store.postgres.postprocess import queue
from apps.trace_store.postgres.reading.locations import locate_runs
from apps.trace_store.postgres.rollups import dirty_intervals
from apps.trace_store.postgres.writing.run_keys import delete_keys
from apps.trace_store.types import ChangedRun, RunKey

BATCH_SIZE = 2000
_FILES_PER_BATCH = 500
_KEY = ("workspace_id", "id", "project_id", "partition_time")
_BATCH_RELATION = (
    "(SELECT %(workspace)s::uuid AS workspace_id, batch.* FROM unnest(%(ids)s::uuid[],"
    " %(projects)s::uuid[], %(traces)s::uuid[], %(roots)s::bool[])"
    " AS batch(id, project_id, trace_id, is_root))"
)
_DELETE_RETAINED_TRACES = """
DELETE FROM trace_store_retainedtrace t USING {runs} r
WHERE t.workspace_id = r.workspace_id AND t.trace_id = r.trace_id AND r.is_root
"""


@dataclass(frozen=True, slots=True)
class _RemovedRun:
    id: UUID
    project_id: UUID
    partition_time: datetime
    trace_id: UUID
    is_root: bool
    attachments: Sequence[str]
    """Object storage keys."""

    @property
    def key(self) -> RunKey:
        return self.id, self.project_id, self.partition_time


def delete_project_runs(workspace_id: UUID, project_id: UUID) -> int:
    """Delete a batch of the oldest runs of the project; return their number."""
    return _delete_batch(
        workspace_id,
        "project_id = %s ORDER BY partition_time, id LIMIT %s",
        [project_id, BATCH_SIZE],
    )


def delete_trace_runs(workspace_id: UUID, project_id: UUID, trace_ids: Collection[UUID]) -> int:
    """Delete a batch of the traces' runs in the project; return their number."""
    return _delete_batch(
        workspace_id,
        "trace_id = ANY(%s) AND project_id = %s ORDER BY partition_time, id LIMIT %s",
        [list(trace_ids), project_id, BATCH_SIZE],
    )


def _delete_batch(workspace_id: UUID, condition: str, values: Sequence[Any]) -> int:
    # Lock the rows first, so that concurrent removals take different rows.
    select = (
        f"SELECT {', '.join(_KEY)}, trace_id, parent_run_id, attachments::text FROM"
        " trace_store_run r"
        f" WHERE workspace_id = %s AND {condition} FOR UPDATE SKIP LOCKED"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(select), [workspace_id, *values], binary=True)
        removed = [
            _RemovedRun(
                id=row[1],
                project_id=row[2],
                partition_time=row[3],
                trace_id=row[4],
                is_root=row[5] is None,
                attachments=[item["path"] for item in loads(row[6] or "{}").values()],
            )
            for row in cursor
        ]
    if not removed:
        return 0
    offloaded = _delete_rows(workspace_id, removed)
    delete_keys(workspace_id, [run.key for run in removed])
    PendingFileDeletion.objects.for_workspace(workspace_id).bulk_create(
        PendingFileDeletion(workspace_id=workspace_id, run_id=run.id, path=path)
        for run in removed
        for path in (*run.attachments, *offloaded.get(run.key, ()))
    )
    params = {
        "workspace": workspace_id,
        "ids": [run.id for run in removed],
        "projects": [run.project_id for run in removed],
        "traces": [run.trace_id for run in removed],
        "roots": [run.is_root for run in removed],
    }
    delete_related_rows(_BATCH_RELATION, params)
    queue.enqueue(
        workspace_id,
        (ChangedRun(run.id, run.project_id, run.partition_time, run.trace_id) for run in removed),
    )
    return len(removed)


def _delete_rows(workspace_id: UUID, removed: Sequence[_RemovedRun]) -> dict[RunKey, list[str]]:
    """Delete the rows; return the object storage paths of their payloads by run."""
    times = [run.partition_time for run in removed]
    keys = [[run.id for run in removed], [run.project_id for run in removed], times]
    paths_by_key: dict[RunKey, list[str]] = {}
    with raw_cursor() as cursor:
        for table in partitions.TABLES:
            paths_sql = (
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
                    f" RETURNING t.id, t.project_id, t.partition_time, {paths_sql}"
                ),
                [*keys, workspace_id, min(times), max(times)],
            )
            paths_by_key |= {(row[0], row[1], row[2]): row[3] for row in cursor if row[3]}
    return paths_by_key


def delete_related_rows(relation: str, params: Mapping[str, Any]) -> None:
    """Delete the rows of all apps that are related to the removed runs, and count the runs.

    `relation` has the columns that `hooks.register_removal` names.
    """
    with raw_cursor() as cursor:
        for statement in (*removal_statements, _DELETE_RETAINED_TRACES):
            cursor.execute(sql(statement.format(runs=relation)), params)
    run_counts.record_removal(relation, params)


def delete_project(workspace_id: UUID, project_id: UUID) -> None:
    """Delete counts, rollups and threads of a project whose runs were deleted."""
    RunCount.objects.for_workspace(workspace_id).filter(project_id=project_id).delete()
    dirty_intervals.delete_project(workspace_id, project_id)


def delete_pending_files() -> None:
    """Delete files of removed runs, then their rows. Safe to interrupt.

    A file is kept while any project has a run with that id, because projects may share the file.
    """
    files = PendingFileDeletion.objects.across_workspaces(
        reason="removes files, each of its own workspace"
    )
    while True:
        with transaction.atomic():
            rows = list(files.order_by("pk").select_for_update(skip_locked=True)[:_FILES_PER_BATCH])
            for workspace_id in {row.workspace_id for row in rows}:
                workspace_rows = [row for row in rows if row.workspace_id == workspace_id]
                existing = locate_runs(workspace_id, {row.run_id for row in workspace_rows})
                for path in {row.path for row in workspace_rows if row.run_id not in existing}:
                    default_storage.delete(path)
            files.filter(pk__in=[row.pk for row in rows]).delete()
        if len(rows) < _FILES_PER_BATCH:
            return
