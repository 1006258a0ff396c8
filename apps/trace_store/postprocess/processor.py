"""Takes what is unsettled, does what follows from it, and takes it off the list."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from uuid import UUID

import psycopg
from django.db import connection, transaction

from apps.trace_store.postprocess import STEPS, Touched, queue
from apps.trace_store.postprocess.throttle import Pace

logger = logging.getLogger(__name__)

RUNS_AT_ONCE = 500
"""A batch is short, so that nobody waits long for its locks."""

Step = Callable[[UUID, Sequence[Touched]], None]

_only_one = threading.Lock()
_pace = Pace(RUNS_AT_ONCE)


def run_for(seconds: float) -> int:
    """Settle until nothing is left or the time is over; return how many runs were settled.

    Processes share the work by workspace; within one process only one call works at a time.
    """
    if not _only_one.acquire(blocking=False):
        return 0
    try:
        deadline, settled = time.monotonic() + seconds, 0
        while (begin := time.monotonic()) < deadline:
            found = settle_some(_pace.runs)
            if found is None:
                break
            settled += found
            time.sleep(_pace.rest(found, time.monotonic() - begin))
        return settled
    finally:
        _only_one.release()


def settle_everything() -> int:
    """Settle until nothing is left, without rest; return how many runs were settled."""
    settled = 0
    while (found := settle_some()) is not None:
        settled += found
    return settled


def settle_some(runs: int = RUNS_AT_ONCE) -> int | None:
    """Settle the oldest of one workspace; how many runs, or None when there is nothing to do.

    All steps, and the rows off the list, in one transaction. When a step fails, the batch is halved
    until the run that makes it fail is alone; that one is parked with the reason.
    """
    claimed: queue.Claim | None = None
    try:
        with transaction.atomic():
            claimed = queue.claim_oldest(runs)
            return None if claimed is None else _settle(claimed)
    except Exception as error:
        if claimed is None or _passes(error):
            raise
        return _take_apart(claimed.workspace_id, claimed.rows, error)


def _settle(claimed: queue.Claim) -> int:
    for settle in _steps():
        settle(claimed.workspace_id, claimed.touched)
    queue.forget(claimed)
    return len(claimed.touched)


def _steps() -> list[Step]:
    return [import_module(name).settle for name in STEPS]


def _settle_rows(workspace_id: UUID, rows: Collection[int]) -> int:
    try:
        with transaction.atomic():
            return _settle(queue.claim(workspace_id, rows))
    except Exception as error:
        if _passes(error):
            raise
        return _take_apart(workspace_id, rows, error)


def _passes(error: Exception) -> bool:
    """Whether it is the state of the server, not of a run: the next try may succeed."""
    waited = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
    return isinstance(error.__cause__, waited) or not connection.is_usable()


def _take_apart(workspace_id: UUID, rows: Collection[int], error: Exception) -> int:
    with transaction.atomic():
        claimed = queue.claim(workspace_id, rows)
        if len(claimed.touched) <= 1:
            return _park(claimed, error)
        halves = queue.halve(claimed)
    return sum(_settle_rows(workspace_id, [half]) for half in halves)


def _park(claimed: queue.Claim, error: Exception) -> int:
    names = ", ".join(str(one.run_id) for one in claimed.touched)
    logger.error("run %s cannot be settled and is parked", names, exc_info=error)
    queue.park(claimed, f"{type(error).__name__}: {error}")
    return 0
