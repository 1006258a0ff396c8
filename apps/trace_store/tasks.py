"""Celery tasks of the trace store. Each is idempotent and may run late."""

from __future__ import annotations

from celery import shared_task

from apps.trace_store import run_store


@shared_task(name="trace_store.create_partitions", time_limit=60)
def create_partitions() -> None:
    """Create the partitions of coming days."""
    run_store.create_partitions()


@shared_task(name="trace_store.compact_run_counts", time_limit=300)
def compact_run_counts() -> None:
    """Merge the run counts of each past hour."""
    run_store.compact_run_counts()


@shared_task(name="trace_store.process_pending_runs", time_limit=120)
def process_pending_runs() -> None:
    """Post-process received runs."""
    run_store.process_pending(seconds=10)


@shared_task(name="trace_store.index_term_backlog", time_limit=120)
def index_term_backlog() -> None:
    """Index runs of an earlier version again."""
    run_store.index_term_backlog(seconds=5)


@shared_task(name="trace_store.rebuild_rollups", time_limit=300, expires=30)
def rebuild_rollups() -> None:
    """Rebuild the rollups of quarter hours, hours and days with changed runs."""
    run_store.rebuild_rollups()
