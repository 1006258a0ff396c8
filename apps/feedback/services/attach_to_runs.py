"""Attaches feedback to its run; the feedback or the run may arrive first.

New feedback is pending until its run has been looked up once. The lookup runs some seconds later,
so that transactions that were open at the time have committed. If the run is written after the
lookup, its post-processing attaches the feedback. No feedback needs a second lookup.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core.connections import raw_cursor
from apps.feedback import hooks
from apps.feedback.models import Feedback
from apps.feedback.services import formulas
from apps.trace_store import ChangedRun, RunKey, RunRow, run_store

_LOOKUP_DELAY = timedelta(seconds=3)
_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class _AttachedFeedback:
    id: UUID
    project_id: UUID
    run_id: UUID
    trace_id: UUID
    key: str
    keeps_trace: bool


_ATTACH = """
    UPDATE feedback_feedback f SET
        project_id = r.project_id, trace_id = r.trace_id, is_root = r.is_root,
        start_time = r.start_time,
        thread_key = CASE WHEN f.is_on_thread THEN f.thread_key ELSE r.thread_key END,
        is_pending = false
    FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::bool[], %s::timestamptz[], %s::text[])
        AS r(id, project_id, trace_id, is_root, start_time, thread_key)
    WHERE f.workspace_id = %s AND f.run_id = r.id
      AND (f.project_id IS NULL OR f.project_id = r.project_id)
      AND (f.is_pending OR f.project_id IS NULL
           OR (f.trace_id, f.is_root, f.start_time, f.thread_key) IS DISTINCT FROM
              (r.trace_id, r.is_root, r.start_time,
               CASE WHEN f.is_on_thread THEN f.thread_key ELSE r.thread_key END))
    RETURNING f.id, f.project_id, f.run_id, f.trace_id, f.key, f.keeps_trace
"""
REMOVAL_STATEMENT = """
DELETE FROM feedback_feedback f USING {runs} r
WHERE f.workspace_id = r.workspace_id AND f.run_id = r.id
"""
"""Deletes the feedback on removed runs, see `apps.trace_store.hooks.register_removal`."""


def attach(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Set project, trace, root flag, start time and thread of the feedback on these runs.

    Also extends the retention of the traces and computes formulas, in the caller's transaction.
    Runs that do not exist change nothing.
    """
    _attach(workspace_id, run_store.fetch_rows(workspace_id, run_ids))


def attach_to_changed_runs(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Attach feedback that arrived before its run: a post-processing step of the run store."""
    attach_by_key(
        workspace_id, [(run.run_id, run.project_id, run.partition_time) for run in changed_runs]
    )


def attach_by_key(workspace_id: UUID, keys: Sequence[RunKey]) -> None:
    """Do the same as `attach` for many runs, located by their keys."""
    run_ids = [run_id for run_id, _, _ in keys]
    feedback = Feedback.objects.for_workspace(workspace_id).filter(run_id__in=run_ids)
    run_ids_with_feedback = set(feedback.values_list("run_id", flat=True).distinct())
    keys = [key for key in keys if key[0] in run_ids_with_feedback]
    _attach(workspace_id, run_store.fetch_rows_by_key(workspace_id, keys))


def _attach(workspace_id: UUID, rows: Sequence[RunRow]) -> None:
    if not rows:
        return
    columns = [
        [row.id for row in rows],
        [row.project_id for row in rows],
        [row.trace_id for row in rows],
        [row.is_root for row in rows],
        [row.start_time for row in rows],
        [row.thread_key for row in rows],
    ]
    with raw_cursor() as cursor:
        cursor.execute(_ATTACH, [*columns, workspace_id])
        attached = [_AttachedFeedback(*row) for row in cursor]
    _apply_effects(workspace_id, attached)


def _apply_effects(workspace_id: UUID, attached: Sequence[_AttachedFeedback]) -> None:
    if not attached:
        return
    hooks.retention_extended(workspace_id, {item.trace_id for item in attached if item.keeps_trace})
    formulas.recompute(
        workspace_id,
        {(item.project_id, item.run_id) for item in attached},
        {item.key for item in attached},
    )


def attach_pending() -> None:
    """Attach pending feedback whose run exists; mark all of it as looked up.

    Concurrent calls process different rows.
    """
    modified_before = timezone.now() - _LOOKUP_DELAY
    pending = Feedback.objects.across_workspaces(reason="attaches pending feedback")
    due = pending.filter(is_pending=True, modified_at__lt=modified_before)
    while True:
        with transaction.atomic():
            rows = list(
                due.select_for_update(skip_locked=True, no_key=True)
                .order_by("modified_at")
                .values_list("pk", "workspace_id", "run_id")[:_BATCH_SIZE]
            )
            by_workspace: dict[UUID, list[tuple[UUID, UUID | None]]] = {}
            for pk, workspace_id, run_id in rows:
                by_workspace.setdefault(workspace_id, []).append((pk, run_id))
            for workspace_id in sorted(by_workspace):
                feedback = by_workspace[workspace_id]
                attach(workspace_id, {run_id for _, run_id in feedback if run_id is not None})
                Feedback.objects.for_workspace(workspace_id).filter(
                    pk__in=[pk for pk, _ in feedback], is_pending=True
                ).update(is_pending=False)
        if len(rows) < _BATCH_SIZE:
            return
