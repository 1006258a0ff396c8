"""Scheduled upkeep: deferred operations and OTLP traces that went quiet."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.ingest.models import DeferredOperation
from apps.ingest.services import ingest_runs
from apps.trace_store import ChangedRun, run_store
from apps.trace_store.postgres.postprocess import queue
from apps.trace_store.postgres.writing import span_trees

QUIET_AFTER = timedelta(minutes=2)
"""Exporters send every few seconds: a trace that is quiet for longer has probably ended."""
_RETRY_AFTER = timedelta(seconds=5)
_PROMOTE_AFTER = timedelta(minutes=15)
_DROP_AFTER = timedelta(days=7)
_BATCH_SIZE = 1000


def retry_deferred_operations() -> None:
    """Apply deferred operations again.

    Two requests that commit at the same moment may miss each other: neither sees the row of the
    other. After 15 minutes a create whose parent is missing becomes a root; after a week an update
    whose run is missing is dropped.
    """
    now = timezone.now()
    deferred = DeferredOperation.objects.across_workspaces(reason="applies deferred operations")
    deferred.filter(created_at__lt=now - _DROP_AFTER).delete()
    due = deferred.filter(created_at__lt=now - _RETRY_AFTER).order_by("created_at")[:_BATCH_SIZE]
    awaited: dict[UUID, set[UUID]] = {}
    for workspace_id, awaited_run_id in due.values_list("workspace_id", "awaited_run_id"):
        awaited.setdefault(workspace_id, set()).add(awaited_run_id)
    for workspace_id, run_ids in awaited.items():
        if existing := run_store.existing(workspace_id, run_ids):
            ingest_runs.apply_deferred(workspace_id, existing)
    for orphan in deferred.filter(created_at__lt=now - _PROMOTE_AFTER)[:_BATCH_SIZE]:
        ingest_runs.promote_orphan(orphan)


def close_quiet_traces() -> int:
    """End the placeholder roots of quiet traces and delete the state of old traces.

    Returns the number of ended placeholders. A root that arrives later still replaces its
    placeholder. Safe to repeat.
    """
    closed = 0
    while True:
        with transaction.atomic():
            rows = span_trees.close_quiet_traces(QUIET_AFTER)
            for workspace_id, run_id, project_id, trace_id, partition_time in rows:
                queue.enqueue(
                    workspace_id, [ChangedRun(run_id, project_id, partition_time, trace_id)]
                )
        closed += len(rows)
        if not rows:
            break
    span_trees.delete_old_trees()
    return closed
