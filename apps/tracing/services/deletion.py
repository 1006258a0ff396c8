"""Deleting traces for good: the request is a row, the work is done from it, batch by batch.

A batch is one transaction that takes runs with everything that is known about them, and writes
down which files they had; the files go after it. So whatever kills the process, the next one goes
on where it was, and nobody ever sees a run without its payload or feedback without its run.
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
from apps.tracing import hooks, tasks
from apps.tracing.models import (
    DeletionStatus,
    DoomedFile,
    KeptTrace,
    Project,
    RunCount,
    Share,
    TraceDeletion,
)

AT_ONCE = 3
"""Batches that are done before the answer: for all but huge traces the answer is the deed."""
_PAGE = 100
_FILES = 500


def delete_traces(
    *,
    project: Project,
    trace_ids: Collection[UUID] = (),
    metadata: Mapping[str, Any] | None = None,
) -> TraceDeletion:
    """Delete the traces of these ids, or those with a run that has this metadata.

    Nobody sees any of them from now on. Small deletions are done on return; of the rest the worker
    takes care. Safe to repeat: what is not there is not deleted.
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
            # Metadata are words of the traces themselves, so only their names are kept.
            after={
                "session_id": project.pk,
                "trace_ids": deletion.trace_ids,
                "filter": sorted(metadata or ()),
            },
            workspace_id=project.workspace_id,
        )
    if not work_off(deletion.pk, batches=AT_ONCE):
        tasks.delete_traces.delay(str(deletion.pk))
    deletion.refresh_from_db()
    return deletion


def work_off(deletion_id: UUID, *, batches: int | None = None) -> bool:
    """Go on with the deletion, so many batches or to its end; whether it is done.

    Safe to run twice and to kill: of two workers, one waits.
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
    remove_doomed_files()
    return True


def _next_batch(deletion: TraceDeletion) -> list[DeletedRun]:
    """Remove some runs of the traces that are meant; of none any more, find those that are next.

    What is found is kept: the run that has the metadata may go long before the rest of its trace.
    """
    workspace_id, project_id = deletion.workspace_id, deletion.project_id
    removed = delete_runs.delete_trace_runs(workspace_id, project_id, deletion.trace_ids)
    if not removed and deletion.metadata:
        for trace_ids in _with_metadata(deletion):
            deletion.trace_ids = trace_ids
            removed = delete_runs.delete_trace_runs(workspace_id, project_id, trace_ids)
            if removed:
                break
    return forget(workspace_id, removed)


def _with_metadata(deletion: TraceDeletion) -> Iterator[list[UUID]]:
    """The traces that have the metadata and came before they were asked for, page by page."""
    query = RunQuery(
        project_ids=[deletion.project_id],
        where=metadata_filter(deletion.metadata or {}),
        include_deleted=True,
    )
    cursor = None
    while True:
        page = run_store.query(deletion.workspace_id, query, limit=_PAGE, cursor=cursor)
        rows = [run.row for run in page.runs if run.row.received_at <= deletion.created_at]
        if rows:
            yield list({row.trace_id for row in rows})
        cursor = page.next_cursor
        if cursor is None:
            return


def remove_runs_of(project: Project) -> None:
    """Remove all runs of the project, batch by batch."""
    while True:
        with transaction.atomic():
            removed = delete_runs.delete_project_runs(project.workspace_id, project.pk)
            forget(project.workspace_id, removed)
        if len(removed) < delete_runs.BATCH_SIZE:
            break
    remove_doomed_files()


def forget(workspace_id: UUID, removed: Sequence[DeletedRun]) -> list[DeletedRun]:
    """Remove what else is known about these runs, in the transaction that removed them."""
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
        KeptTrace.objects.for_workspace(workspace_id).filter(trace_id__in=traces).delete()
        with raw_cursor() as cursor:
            for table in ("tracing_otlptrace", "tracing_otlporphan"):
                cursor.execute(
                    sql(f"DELETE FROM {table} WHERE workspace_id = %s AND trace_id = ANY(%s)"),  # noqa: S608  (ours)
                    [workspace_id, traces],
                )
    DoomedFile.objects.for_workspace(workspace_id).bulk_create(
        DoomedFile(workspace_id=workspace_id, run_id=run.id, path=path)
        for run in removed
        for path in run.files
    )
    _count_down(workspace_id, removed)
    return list(removed)


def _count_down(workspace_id: UUID, removed: Sequence[DeletedRun]) -> None:
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


def remove_doomed_files() -> None:
    """Delete files whose runs are gone, then the rows that remember them. Safe to stop anywhere.

    A file stays while a run of that id is there: two projects may have it.
    """
    doomed = DoomedFile.objects.across_workspaces(reason="removes files, each of its own workspace")
    while True:
        with transaction.atomic():
            rows = list(doomed.order_by("pk").select_for_update(skip_locked=True)[:_FILES])
            for workspace_id in {row.workspace_id for row in rows}:
                own = [row for row in rows if row.workspace_id == workspace_id]
                alive = run_store.existing(workspace_id, {row.run_id for row in own})
                for path in {row.path for row in own if row.run_id not in alive}:
                    default_storage.delete(path)
            doomed.filter(pk__in=[row.pk for row in rows]).delete()
        if len(rows) < _FILES:
            return


def go_on() -> None:
    """Take up the deletions whose message was lost, and files that were left."""
    pending = TraceDeletion.objects.across_workspaces(reason="each row says whose it is").pending()
    for deletion_id in pending.order_by("created_at").values_list("pk", flat=True):
        work_off(deletion_id)
    remove_doomed_files()
