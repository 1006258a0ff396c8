"""Scheduled maintenance of deferred operations and of quiet OTLP traces."""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby, islice
from operator import itemgetter

from django.db import transaction
from django.utils import timezone

from apps.ingest.models import DeferredOperation
from apps.ingest.otlp import trace_state
from apps.ingest.services import ingest_runs
from apps.trace_store import run_store

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
    deferred.received_before(now - _DROP_AFTER).delete()
    due = deferred.received_before(now - _RETRY_AFTER).order_by("workspace_id", "awaited_run_id")
    awaited = due.values_list("workspace_id", "awaited_run_id").distinct()
    # Read all of them: most may await runs that never come.
    remaining = awaited.iterator(chunk_size=_BATCH_SIZE)
    while pairs := list(islice(remaining, _BATCH_SIZE)):
        for workspace_id, group in groupby(pairs, key=itemgetter(0)):
            run_ids = {awaited_run_id for _, awaited_run_id in group}
            if existing := run_store.find_existing_ids(workspace_id, run_ids):
                ingest_runs.apply_deferred(workspace_id, existing)
    for orphan in deferred.received_before(now - _PROMOTE_AFTER).orphans()[:_BATCH_SIZE]:
        ingest_runs.promote_orphan(orphan)


def close_quiet_traces() -> int:
    """End the placeholder roots of quiet traces and delete the state of old traces.

    Returns the number of ended placeholders. A root that arrives later still replaces its
    placeholder. Safe to repeat.
    """
    closed = 0
    while True:
        with transaction.atomic():
            traces = trace_state.claim_quiet_traces(QUIET_AFTER)
            for trace in traces:
                closed += run_store.end_placeholder(
                    trace.workspace_id,
                    trace.placeholder,
                    start_time=trace.first_at,
                    end_time=trace.ended_at,
                )
        if not traces:
            break
    trace_state.delete_old_state()
    return closed
