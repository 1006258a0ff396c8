"""What becomes of traces whose spans stopped coming."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from apps.trace_store.postprocess import Touched, queue
from apps.trace_store.store import trees

QUIET = timedelta(minutes=2)
"""Exporters send every few seconds: a trace that is quiet for longer has probably ended."""


def close_quiet_traces() -> int:
    """End the stand-ins of quiet traces, and forget traces that are long over; safe to repeat.

    Returns how many were ended. A root that comes later takes its stand-in's place all the same.
    """
    closed = 0
    while True:
        with transaction.atomic():
            some = trees.close_quiet(QUIET)
            for workspace_id, run_id, project_id, trace_id, placed_at in some:
                touched = Touched(run_id, project_id, placed_at, trace_id)
                queue.append(workspace_id, [touched])
        closed += len(some)
        if not some:
            break
    trees.forget_old()
    return closed
