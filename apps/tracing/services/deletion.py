"""Permanent deletion of traces: a request is a row, processed in batches.

A batch is one transaction that removes runs with all related rows and records their files, which
are deleted afterwards. A killed process therefore loses nothing: the next one resumes, and no
reader sees a run without its payload or feedback without its run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.raw_sql import raw_cursor, sql
from apps.feedback.models import Feedback
from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters.builders import metadata_filter
from apps.trace_store.postgres.writing import delete_runs
from apps.trace_store.types import DeletedRun
from apps.tracing import dispatch, hooks
from apps.tracing.models import (
    DeletionStatus,
    PendingFileDeletion,
    Project,
    RetainedTrace,
    RunCount,
    Share,
    TraceDeletion,
)

INLINE_BATCHES = 3
"""Batches processed within the request, which suffices for all but huge traces."""
_TRACES_PER_BATCH = 100
_FILES_PER_BATCH = 500


def delete_traces(
    *,
    project: Project,
    trace_ids: Collection[UUID] = (),
    metadata: Mapping[str, Any] | None = None,
) -> TraceDeletion:
    """Delete the traces of these ids, or those with a run that has this metadata.

    The traces are hidden at once. Small deletions are complete on return; the worker processes
    the rest. Idempotent: missing traces are ignored.
    """
    with transaction.atomic():
        deletion = TraceDeletion(
            workspace_id=project.workspace_id,
            project=project,
            trace_ids=sorted(set(trace_ids)),
            metadata=None if metadata is None else dict(metadata),
        )
        deletion.save(force_insert=True)
        record(
            Action.TRACES_DELETED,
            Target("traces", deletion.pk, project.name),
            # Metadata values are content of traces, so the audit log records only their keys.
            after={
                "session_id": project.pk,
                "trace_ids": deletion.trace_ids,
                "filter": sorted(metadata or ()),
            },
            workspace_id=project.workspace_id,
        )
    if not process_deletion(deletion.pk, batches=INLINE_BATCHES):
        dispatch.delete_traces(deletion.pk)
    deletion.refresh_from_db()
    return deletion


def process_deletion(deletion_id: UUID, *, batches: int | None = None) -> bool:
    """Process some or all remaining batches; return whether the deletion is complete.

    Safe to run concurrently and to kill: a row lock serializes workers.
    """
    pending = TraceDeletion.objects.across_workspaces(reason="each row says whose it is").pending()
    done = 0
    while batches is None or done < batches:
        with transaction.atomic():
            deletion = pending.select_for_update(no_key=True).filter(pk=deletion_id).first()
            if deletion is None:
                break
            removed = _next_batch(deletion)
            deletion.removed_runs += len(removed)
            if not removed:
                deletion.status, deletion.finished_at = DeletionStatus.DONE, timezone.now()
            deletion.save(update_fields=["trace_ids", "removed_runs", "status", "finished_at"])
        done += 1
    else:
        return False
    remove_pending_files()
    return True


def _next_batch(deletion: TraceDeletion) -> list[DeletedRun]:
    """Remove a batch of runs; if none remain, find the next traces by metadata.

    The found ids are stored: the run with the metadata may be removed before its trace's others.
    """
    workspace_id, project_id = deletion.workspace_id, deletion.project_id
    removed = delete_runs.delete_trace_runs(workspace_id, project_id, deletion.trace_ids)
    if not removed and deletion.metadata:
        for trace_ids in _find_by_metadata(deletion):
            deletion.trace_ids = trace_ids
            removed = delete_runs.delete_trace_runs(workspace_id, project_id, trace_ids)
            if removed:
                break
    return remove_related_rows(workspace_id, removed)


def _find_by_metadata(deletion: TraceDeletion) -> Iterator[list[UUID]]:
    """Yield pages of the traces that have the metadata and were received before the request."""
    query = RunQuery(
        project_ids=[deletion.project_id],
        where=metadata_filter(deletion.metadata or {}),
        include_deleted=True,
    )
    cursor = None
    while True:
        page = run_store.query(deletion.workspace_id, query, limit=_TRACES_PER_BATCH, cursor=cursor)
        rows = [run.row for run in page.runs if run.row.received_at <= deletion.created_at]
        if rows:
            yield list({row.trace_id for row in rows})
        cursor = page.next_cursor
        if cursor is None:
            return


def remove_project_runs(project: Project) -> None:
    """Remove all runs of the project in batches."""
    while True:
        with transaction.atomic():
            removed = delete_runs.delete_project_runs(project.workspace_id, project.pk)
            remove_related_rows(project.workspace_id, removed)
        if len(removed) < delete_runs.BATCH_SIZE:
            break
    remove_pending_files()


def remove_related_rows(workspace_id: UUID, removed: Sequence[DeletedRun]) -> list[DeletedRun]:
    """Remove rows related to these runs, in the transaction that removed the runs."""
    if not removed:
        return []
    run_ids = [run.id for run in removed]
    traces = [run.trace_id for run in removed if run.is_root]
    Feedback.objects.for_workspace(workspace_id).filter(run_id__in=run_ids).delete()
    hooks.runs_removed(workspace_id, run_ids)
    if traces:
        projects = {run.project_id for run in removed}
        Share.objects.for_workspace(workspace_id).filter(
            project_id__in=projects, trace_id__in=traces
        ).delete()
        RetainedTrace.objects.for_workspace(workspace_id).filter(trace_id__in=traces).delete()
        with raw_cursor() as cursor:
            for table in ("tracing_otlptrace", "tracing_otlporphan"):
                cursor.execute(
                    sql(f"DELETE FROM {table} WHERE workspace_id = %s AND trace_id = ANY(%s)"),  # noqa: S608  (constant table names)
                    [workspace_id, traces],
                )
    PendingFileDeletion.objects.for_workspace(workspace_id).bulk_create(
        PendingFileDeletion(workspace_id=workspace_id, run_id=run.id, path=path)
        for run in removed
        for path in run.files
    )
    _count_removed_runs(workspace_id, removed)
    return list(removed)


def _count_removed_runs(workspace_id: UUID, removed: Sequence[DeletedRun]) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for project_id in sorted({run.project_id for run in removed}):
        of_project = [run for run in removed if run.project_id == project_id]
        RunCount(
            workspace_id=workspace_id,
            project_id=project_id,
            hour=hour,
            removed_runs=len(of_project),
            removed_traces=sum(run.is_root for run in of_project),
        ).save(force_insert=True)


def remove_pending_files() -> None:
    """Delete files of removed runs, then their rows. Safe to interrupt.

    A file stays while a run with that id exists: two projects may share it.
    """
    files = PendingFileDeletion.objects.across_workspaces(
        reason="removes files, each of its own workspace"
    )
    while True:
        with transaction.atomic():
            rows = list(files.order_by("pk").select_for_update(skip_locked=True)[:_FILES_PER_BATCH])
            for workspace_id in {row.workspace_id for row in rows}:
                own = [row for row in rows if row.workspace_id == workspace_id]
                alive = run_store.existing(workspace_id, {row.run_id for row in own})
                for path in {row.path for row in own if row.run_id not in alive}:
                    default_storage.delete(path)
            files.filter(pk__in=[row.pk for row in rows]).delete()
        if len(rows) < _FILES_PER_BATCH:
            return


def continue_deletions() -> None:
    """Resume deletions whose task was lost, and delete remaining files."""
    pending = TraceDeletion.objects.across_workspaces(reason="each row says whose it is").pending()
    for deletion_id in pending.order_by("created_at").values_list("pk", flat=True):
        process_deletion(deletion_id)
    remove_pending_files()
