"""Attaches feedback to its run, whichever arrives first.

New feedback is pending until its run has been looked up once, seconds later, when transactions that
were open at the time have committed. Post-processing of a run that is written after that lookup
attaches its feedback. So each feedback is attached, without repeated lookups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core.raw_sql import raw_cursor, sql
from apps.feedback import hooks
from apps.feedback.models import Feedback
from apps.feedback.services import formulas
from apps.trace_store import ChangedRun
from apps.trace_store.postgres.reading.locations import estimate_start_range

_LOOK_UP_AFTER = timedelta(seconds=3)
_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class _Attached:
    id: UUID
    project_id: UUID
    run_id: UUID
    trace_id: UUID
    key: str
    keeps_trace: bool


_ATTACH = """
    UPDATE feedback_feedback f SET
        project_id = r.project_id, trace_id = r.trace_id, is_root = r.parent_run_id IS NULL,
        start_time = COALESCE(r.start_time, r.partition_time),
        thread_key = CASE WHEN f.is_on_thread THEN f.thread_key ELSE r.thread_key END,
        is_pending = false
    FROM trace_store_run r
    WHERE f.workspace_id = %s AND f.run_id = ANY(%s)
      AND r.workspace_id = f.workspace_id AND r.id = f.run_id
      AND (f.project_id IS NULL OR f.project_id = r.project_id)
      AND (f.is_pending OR f.project_id IS NULL
           OR (f.trace_id, f.is_root, f.start_time, f.thread_key) IS DISTINCT FROM
              (r.trace_id, r.parent_run_id IS NULL, COALESCE(r.start_time, r.partition_time),
               CASE WHEN f.is_on_thread THEN f.thread_key ELSE r.thread_key END))
"""
_RETURNING = " RETURNING f.id, f.project_id, f.run_id, f.trace_id, f.key, f.keeps_trace"


def attach(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Set project, trace, root flag, start time and thread of the feedback on these runs.

    Also extends the retention of the traces and computes formulas, in the caller's transaction.
    Runs that do not exist change nothing.
    """
    days = estimate_start_range(run_ids)
    attached: list[_Attached] = []
    if days is not None:
        bounds = " AND r.partition_time BETWEEN %s AND %s"
        attached = _update(_ATTACH + bounds, [workspace_id, list(run_ids), *days])
    missing = list(set(run_ids) - {item.run_id for item in attached})
    if missing:
        attached += _update(_ATTACH, [workspace_id, missing])
    _apply_effects(workspace_id, attached)


def attach_to_changed_runs(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Attach feedback that arrived before its run: a post-processing step of the run store."""
    attach_by_key(
        workspace_id, [(run.run_id, run.project_id, run.partition_time) for run in changed_runs]
    )


def attach_by_key(workspace_id: UUID, keys: Sequence[tuple[UUID, UUID, datetime]]) -> None:
    """Like `attach`, for many runs whose keys (id, project, partition time) are known."""
    run_ids = [run_id for run_id, _, _ in keys]
    feedback = Feedback.objects.for_workspace(workspace_id).filter(run_id__in=run_ids)
    with_feedback = set(feedback.values_list("run_id", flat=True).distinct())
    keys = [key for key in keys if key[0] in with_feedback]
    if not keys:
        return
    bounds = (
        " AND (r.id, r.project_id, r.partition_time) IN"
        " (SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]))"
        " AND r.partition_time BETWEEN %s AND %s"
    )
    times = [partition_time for _, _, partition_time in keys]
    columns = [list(column) for column in zip(*keys, strict=True)]
    values = [workspace_id, list(with_feedback), *columns, min(times), max(times)]
    _apply_effects(workspace_id, _update(_ATTACH + bounds, values))


def _update(statement: str, values: list[Any]) -> list[_Attached]:
    with raw_cursor() as cursor:
        cursor.execute(sql(statement + _RETURNING), values)
        return [_Attached(*row) for row in cursor]


def _apply_effects(workspace_id: UUID, attached: Sequence[_Attached]) -> None:
    if not attached:
        return
    hooks.retention_extended(workspace_id, {item.trace_id for item in attached if item.keeps_trace})
    formulas.recompute(
        workspace_id,
        {(item.project_id, item.run_id) for item in attached},
        {item.key for item in attached},
    )


def attach_pending() -> None:
    """Look up the runs of pending feedback once. Concurrent calls share the work."""
    created_before = timezone.now() - _LOOK_UP_AFTER
    pending = Feedback.objects.across_workspaces(reason="attaches pending feedback")
    due = pending.filter(is_pending=True, modified_at__lt=created_before)
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
                keys = by_workspace[workspace_id]
                attach(workspace_id, {run_id for _, run_id in keys if run_id is not None})
                Feedback.objects.for_workspace(workspace_id).filter(
                    pk__in=[pk for pk, _ in keys], is_pending=True
                ).update(is_pending=False)
        if len(rows) < _BATCH_SIZE:
            return
