"""Celery tasks of tracing. Each task is idempotent and may run late."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from apps.tracing.services import deletion, retention


@shared_task(name="tracing.remove_deleted_projects", time_limit=3600)
def remove_deleted_projects() -> None:
    """Remove the data of deleted projects, then their rows."""
    deletion.remove_deleted_projects()


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
    retention.expire_traces()
