"""Permanent deletion of traces. A `TraceDeletion` row is processed in batches.

A batch is one transaction: it removes runs with all related rows, and records their files for
later deletion. If a process is killed, the next process resumes. No reader sees a run without its
payload, or feedback without its run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.feedback.models import Feedback
from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters.builders import metadata_filter
from apps.tracing import dispatch
from apps.tracing.models import DeletionStatus, Project, TraceDeletion

INLINE_BATCHES = 3
"""Batches processed within the request; only very large traces need more."""
_TRACES_PER_BATCH = 100


def delete_traces(
    *,
    project: Project,
    trace_ids: Collection[UUID] = (),
    metadata: Mapping[str, Any] | None = None,
) -> TraceDeletion:
    """Delete the traces with these ids, or the traces in which a run has the metadata.

    The traces are hidden immediately. A small deletion is complete on return; a task completes a
    larger one. Idempotent: missing traces are ignored.
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
    pending = TraceDeletion.objects.across_workspaces(
        reason="resumes deletions of all workspaces"
    ).pending()
    processed = 0
    while batches is None or processed < batches:
        with transaction.atomic():
            deletion = pending.select_for_update(no_key=True).filter(pk=deletion_id).first()
            if deletion is None:
                break
            removed = _delete_batch(deletion)
            deletion.removed_runs += removed
            if not removed:
                deletion.status, deletion.finished_at = DeletionStatus.DONE, timezone.now()
            deletion.save(update_fields=["trace_ids", "removed_runs", "status", "finished_at"])
        processed += 1
    else:
        return False
    run_store.delete_pending_files()
    return True


def _delete_batch(deletion: TraceDeletion) -> int:
    """Delete a batch of runs; if no run is left, find the next traces by metadata.

    The trace ids are stored, because the run that has the metadata may be removed before the other
    runs of its trace.
    """
    workspace_id, project_id = deletion.workspace_id, deletion.project_id
    removed = run_store.delete_traces(workspace_id, project_id, deletion.trace_ids)
    if not removed and deletion.metadata:
        for trace_ids in _find_by_metadata(deletion):
            deletion.trace_ids = trace_ids
            removed = run_store.delete_traces(workspace_id, project_id, trace_ids)
            if removed:
                break
    return removed


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


def continue_deletions() -> None:
    """Resume deletions whose task was lost, and delete remaining files."""
    pending = TraceDeletion.objects.across_workspaces(
        reason="resumes deletions of all workspaces"
    ).pending()
    for deletion_id in pending.order_by("created_at").values_list("pk", flat=True):
        process_deletion(deletion_id)
    run_store.delete_pending_files()


def remove_deleted_projects() -> None:
    """Remove the data of deleted projects, then their rows. Safe to interrupt."""
    deleted = Project.objects.across_workspaces(reason="removes projects that their owners deleted")
    for project in deleted.exclude(deleted_at=None).order_by("deleted_at"):
        _remove_runs(project)
        Feedback.objects.for_workspace(project.workspace_id).filter(project=project).delete()
        run_store.delete_project(project.workspace_id, project.pk)
        project.delete()


def _remove_runs(project: Project) -> None:
    removed = 1
    while removed:
        with transaction.atomic():
            removed = run_store.delete_project_runs(project.workspace_id, project.pk)
    run_store.delete_pending_files()
