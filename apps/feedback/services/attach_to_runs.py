"""Feedback and its run find each other, whichever comes first.

Feedback that came is pending until somebody has looked for its run once, seconds later, when all
that was being written at the time can be seen. A run that comes after that look finds its feedback
itself, when it is settled. So none is missed, and none is looked for again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.feedback.models import Feedback
from apps.feedback.services import formulas
from apps.trace_store.store.locating import probable_days
from apps.trace_store.store.raw import raw_cursor, sql
from apps.tracing.services import retention

_LOOKED_FOR_AFTER = timedelta(seconds=3)
_AT_ONCE = 500


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
        start_time = COALESCE(r.start_time, r.placed_at),
        thread_key = CASE WHEN f.is_on_thread THEN f.thread_key ELSE r.thread_key END,
        is_pending = false
    FROM tracing_run r
    WHERE f.workspace_id = %s AND f.run_id = ANY(%s)
      AND r.workspace_id = f.workspace_id AND r.id = f.run_id
      AND (f.project_id IS NULL OR f.project_id = r.project_id)
      AND (f.is_pending OR f.project_id IS NULL
           OR (f.trace_id, f.is_root, f.start_time, f.thread_key) IS DISTINCT FROM
              (r.trace_id, r.parent_run_id IS NULL, COALESCE(r.start_time, r.placed_at),
               CASE WHEN f.is_on_thread THEN f.thread_key ELSE r.thread_key END))
"""
_RETURNING = " RETURNING f.id, f.project_id, f.run_id, f.trace_id, f.key, f.keeps_trace"


def attach(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Give the feedback on these runs its project, trace, root flag, start time and thread.

    What follows from that is done too: its trace is kept, and formulas are computed. In the
    caller's transaction; runs that are not there change nothing.
    """
    near = probable_days(run_ids)
    found: list[_Attached] = []
    if near is not None:
        bounds = " AND r.placed_at BETWEEN %s AND %s"
        found = _update(_ATTACH + bounds, [workspace_id, list(run_ids), *near])
    missing = list(set(run_ids) - {one.run_id for one in found})
    if missing:
        found += _update(_ATTACH, [workspace_id, missing])
    _follow(workspace_id, found)


def attach_to(workspace_id: UUID, keys: Sequence[tuple[UUID, UUID, datetime]]) -> None:
    """The same for runs whose whole keys (id, project, place) are known, many of them at once."""
    run_ids = [run_id for run_id, _, _ in keys]
    about = Feedback.objects.for_workspace(workspace_id).filter(run_id__in=run_ids)
    named = set(about.values_list("run_id", flat=True).distinct())
    ours = [key for key in keys if key[0] in named]
    if not ours:
        return
    bounds = (
        " AND (r.id, r.project_id, r.placed_at) IN"
        " (SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]))"
        " AND r.placed_at BETWEEN %s AND %s"
    )
    places = [placed_at for _, _, placed_at in ours]
    columns = [list(column) for column in zip(*ours, strict=True)]
    values = [workspace_id, list(named), *columns, min(places), max(places)]
    _follow(workspace_id, _update(_ATTACH + bounds, values))


def _update(statement: str, values: list[Any]) -> list[_Attached]:
    with raw_cursor() as cursor:
        cursor.execute(sql(statement + _RETURNING), values)
        return [_Attached(*row) for row in cursor]


def _follow(workspace_id: UUID, attached: Sequence[_Attached]) -> None:
    if not attached:
        return
    retention.upgrade_traces(workspace_id, {one.trace_id for one in attached if one.keeps_trace})
    formulas.recompute(
        workspace_id,
        {(one.project_id, one.run_id) for one in attached},
        {one.key for one in attached},
    )


def attach_pending() -> None:
    """Look once for the runs of feedback that came a moment ago. Several may do it at once."""
    before = timezone.now() - _LOOKED_FOR_AFTER
    pending = Feedback.objects.across_workspaces(reason="attaches what came, each in its own")
    waiting = pending.filter(is_pending=True, modified_at__lt=before)
    while True:
        with transaction.atomic():
            some = list(
                waiting.select_for_update(skip_locked=True, no_key=True)
                .order_by("modified_at")
                .values_list("pk", "workspace_id", "run_id")[:_AT_ONCE]
            )
            by_workspace: dict[UUID, list[tuple[UUID, UUID | None]]] = {}
            for pk, workspace_id, run_id in some:
                by_workspace.setdefault(workspace_id, []).append((pk, run_id))
            for workspace_id in sorted(by_workspace):
                rows = by_workspace[workspace_id]
                attach(workspace_id, {run_id for _, run_id in rows if run_id is not None})
                Feedback.objects.for_workspace(workspace_id).filter(
                    pk__in=[pk for pk, _ in rows], is_pending=True
                ).update(is_pending=False)
        if len(some) < _AT_ONCE:
            return
