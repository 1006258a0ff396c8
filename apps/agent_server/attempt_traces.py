"""Traces of attempts: their ids, and the end of those that their process could not report.

The tracing SDK in a graph host sends the end of a run shortly after it. If the host's process ends
before that, the runs of the trace stay open forever. The transaction that notices the end of an
attempt therefore adds an `UnreportedAttempt`, and a periodic task closes the open runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID, uuid5

import msgspec
from django.db.models.functions import Now

from apps.agent_server.models import UnreportedAttempt
from apps.core.errors import AppError
from apps.ingest.decoders import IngestRequest
from apps.ingest.operations import RunOperation, WireRun
from apps.ingest.services.ingest_runs import ingest
from apps.trace_store import run_store
from apps.trace_store.types import RunRow

logger = logging.getLogger(__name__)

BATCH_SIZE = 500
RECHECK_AFTER = (timedelta(seconds=30), timedelta(minutes=5))
"""Later checks, for requests that a loaded machine stores late."""


def build_trace_id(run_id: UUID, attempt: int) -> UUID:
    """Return the id of the attempt's topmost run, which is also its trace's id if it is a root.

    The first attempt has the id of the agent run. A retry has its own, so that its trace contains
    no run of a lost attempt.
    """
    return run_id if attempt == 1 else uuid5(run_id, f"attempt {attempt}")


def close_due() -> int:
    """Close the open runs of unreported attempts; return the number of closed runs.

    Safe to repeat and to run concurrently: a closed run is not open any more.
    """
    attempts = UnreportedAttempt.objects.across_workspaces(
        reason="processes end in all workspaces"
    ).filter(due_at__lte=Now())
    closed = 0
    while batch := list(attempts.order_by("due_at")[:BATCH_SIZE]):
        reported = _find_reported(batch)
        closed += sum(_close_attempt(a) for a in batch if a.pk not in reported)
        for check_count, delay in enumerate(RECHECK_AFTER):
            checked = {attempt.pk for attempt in batch if attempt.check_count == check_count}
            attempts.filter(pk__in=checked - reported).update(
                check_count=check_count + 1, due_at=Now() + delay
            )
        attempts.filter(pk__in=[attempt.pk for attempt in batch]).delete()
    return closed


def _find_reported(attempts: Sequence[UnreportedAttempt]) -> set[UUID]:
    """Return the keys of attempts whose process reported the end of the trace after all."""
    # The SDK sends the end of the root last. A later check sees ends that an earlier one wrote.
    by_trace = {
        (attempt.workspace_id, build_trace_id(attempt.run_id, attempt.attempt)): attempt.pk
        for attempt in attempts
        if attempt.check_count == 0
    }
    reported = set()
    for workspace_id in {workspace_id for workspace_id, _ in by_trace}:
        trace_ids = [trace_id for workspace, trace_id in by_trace if workspace == workspace_id]
        for row in run_store.fetch_rows(workspace_id, trace_ids):
            if row.end_time is not None:
                reported.add(by_trace[workspace_id, row.id])
    return reported


def _close_attempt(attempt: UnreportedAttempt) -> int:
    trace_id = build_trace_id(attempt.run_id, attempt.attempt)
    rows = _fetch_attempt(attempt.workspace_id, trace_id)
    operations = list(_build_updates(rows, attempt))
    if not operations:
        return 0
    try:
        ingest(attempt.workspace_id, IngestRequest(operations, protocol="platform"))
    except AppError as error:
        logger.warning("The trace %s of a lost attempt stays open: %s", trace_id, error)
        return 0
    return len(operations)


def _fetch_attempt(workspace_id: UUID, top_id: UUID) -> list[RunRow]:
    """Return the runs of the attempt, which may be below a root run that is not its own."""
    rows = list(run_store.fetch_trace(workspace_id, top_id))
    if rows:
        return rows
    for top in run_store.fetch_rows(workspace_id, [top_id]):
        trace = run_store.fetch_trace(workspace_id, top.trace_id, project_id=top.project_id)
        rows += (row for row in trace if row.dotted_order.startswith(top.dotted_order))
    return rows


def _build_updates(rows: Iterable[RunRow], attempt: UnreportedAttempt) -> Iterable[RunOperation]:
    """Yield updates that end the trace's open runs."""
    for row in rows:
        if row.end_time is None:
            run = WireRun(
                id=row.id,
                trace_id=row.trace_id,
                parent_run_id=row.parent_run_id,
                dotted_order=row.dotted_order,
                session_id=row.project_id,
                end_time=max(row.start_time, attempt.ended_at).isoformat(),
            )
            if attempt.error and row.error_preview is None:
                run.error = msgspec.Raw(msgspec.json.encode(attempt.error))
            yield RunOperation(is_update=True, run=run)
