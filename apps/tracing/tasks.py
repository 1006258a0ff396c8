"""Celery tasks of tracing. Each is idempotent and may run late."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.postprocess import processor
from apps.trace_store.postgres.rollups import build
from apps.tracing.services import deletion, expiry, maintenance


@shared_task(name="tracing.ensure_partitions", time_limit=60)
def ensure_partitions() -> None:
    """Create the partitions of coming days."""
    partitions.create_partitions()


@shared_task(name="tracing.compact_run_counts", time_limit=300)
def compact_run_counts() -> None:
    """Merge the run counts of each past hour."""
    maintenance.compact_run_counts()


@shared_task(name="tracing.remove_deleted_projects", time_limit=3600)
def remove_deleted_projects() -> None:
    """Remove the data of deleted projects, then their rows."""
    maintenance.remove_deleted_projects()


@shared_task(name="tracing.process_pending_runs", time_limit=120)
def process_pending_runs() -> None:
    """Post-process received runs."""
    processor.process_for(seconds=10)


@shared_task(name="tracing.delete_traces", time_limit=3600)
def delete_traces(deletion_id: str) -> None:
    """Continue a deletion that its request did not complete."""
    deletion.process_deletion(UUID(deletion_id))


@shared_task(name="tracing.continue_deletions", time_limit=3600)
def continue_deletions() -> None:
    """Resume deletions whose task was lost, and delete files of removed runs."""
    deletion.continue_deletions()


@shared_task(name="tracing.expire", time_limit=10_800)
def expire() -> None:
    """Remove expired traces."""
    expiry.expire()


@shared_task(name="tracing.build_rollups", time_limit=300, expires=30)
def build_rollups() -> None:
    """Rebuild the rollups of quarter hours, hours and days with changed runs."""
    build.rebuild_dirty_intervals()
