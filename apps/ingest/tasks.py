"""Scheduled tasks of ingest. Each task may run twice or late."""

from __future__ import annotations

from celery import shared_task

from apps.ingest.services import maintenance


@shared_task(name="ingest.retry_deferred_operations", time_limit=300)
def retry_deferred_operations() -> None:
    """Apply deferred operations whose awaited run exists or that have waited too long."""
    maintenance.retry_deferred_operations()


@shared_task(name="ingest.close_quiet_traces", time_limit=300)
def close_quiet_traces() -> None:
    """End placeholder roots of quiet OTLP traces and delete the state of old traces."""
    maintenance.close_quiet_traces()
