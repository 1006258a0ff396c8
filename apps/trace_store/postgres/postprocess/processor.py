"""Processes pending runs: claims entries of the queue, runs all steps, completes the entries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from uuid import UUID

import psycopg
from django.db import connection, transaction

from apps.trace_store.hooks import PostprocessStep, postprocess_steps
from apps.trace_store.postgres.postprocess import (
    missing_costs,
    queue,
    term_index,
    thread_rows,
    trace_totals,
)
from apps.trace_store.postgres.postprocess.throttle import Throttle
from apps.trace_store.postgres.rollups import dirty_intervals

logger = logging.getLogger(__name__)

BATCH_RUNS = 500
"""Short batches hold their locks only briefly."""

_process_lock = threading.Lock()
_throttle = Throttle(BATCH_RUNS)


def process_for(seconds: float) -> int:
    """Process pending runs until none is left or time is up; return their number.

    Processes work on different workspaces; within a process, only one call works at a time.
    """
    if not _process_lock.acquire(blocking=False):
        return 0
    try:
        deadline, processed = time.monotonic() + seconds, 0
        while (begin := time.monotonic()) < deadline:
            result = process_batch(_throttle.runs)
            if result is None:
                break
            processed += result
            time.sleep(_throttle.pause_seconds(result, time.monotonic() - begin))
        return processed
    finally:
        _process_lock.release()


def process_all() -> int:
    """Process all pending runs without pauses; return their number."""
    processed = 0
    while (result := process_batch()) is not None:
        processed += result
    return processed


def process_batch(runs: int = BATCH_RUNS) -> int | None:
    """Process the oldest entries of one workspace; return the number of runs, None if no entry.

    All steps and the completion are one transaction. If a step fails, the batch is halved until the
    failing run is alone; that run is parked with the reason.
    """
    claimed: queue.Claim | None = None
    try:
        with transaction.atomic():
            claimed = queue.claim_oldest(runs)
            return None if claimed is None else _process(claimed)
    except Exception as error:
        if claimed is None or _is_transient(error):
            raise
        return _split_batch(claimed.workspace_id, claimed.entry_ids, error)


def _process(claimed: queue.Claim) -> int:
    for run_step in _steps():
        run_step(claimed.workspace_id, claimed.changed_runs)
    queue.complete(claimed)
    return len(claimed.changed_runs)


def _steps() -> list[PostprocessStep]:
    # Steps that lock rows of runs come last, so that requests wait for them only briefly.
    return [
        term_index.index_runs,
        *postprocess_steps,
        missing_costs.add_missing_costs,
        dirty_intervals.mark_changed_intervals,
        thread_rows.update_thread_rows,
        trace_totals.update_totals,
    ]


def _process_entries(workspace_id: UUID, entry_ids: Collection[int]) -> int:
    try:
        with transaction.atomic():
            return _process(queue.claim_entries(workspace_id, entry_ids))
    except Exception as error:
        if _is_transient(error):
            raise
        return _split_batch(workspace_id, entry_ids, error)


def _is_transient(error: Exception) -> bool:
    """Whether the failure is due to the server, so that a retry may succeed."""
    concurrency_errors = (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.SerializationFailure,  # a request moved a run to another partition
    )
    return isinstance(error.__cause__, concurrency_errors) or not connection.is_usable()


def _split_batch(workspace_id: UUID, entry_ids: Collection[int], error: Exception) -> int:
    with transaction.atomic():
        claimed = queue.claim_entries(workspace_id, entry_ids)
        if len(claimed.changed_runs) <= 1:
            return _park_run(claimed, error)
        half_ids = queue.split_claim(claimed)
    return sum(_process_entries(workspace_id, [entry_id]) for entry_id in half_ids)


def _park_run(claimed: queue.Claim, error: Exception) -> int:
    run_ids = ", ".join(str(run.run_id) for run in claimed.changed_runs)
    logger.error("run %s cannot be processed and is parked", run_ids, exc_info=error)
    queue.park_claim(claimed, f"{type(error).__name__}: {error}")
    return 0
