"""Periodic tasks. Each may run twice, or late."""

from __future__ import annotations

from celery import shared_task, signals

from apps.usage import meter, services, storage


@signals.worker_ready.connect
def start_meter(**_: object) -> None:
    """Start the meter for agent runs."""
    meter.start()


@shared_task(name="usage.update_usage_days", time_limit=300)
def update_usage_days() -> None:
    """Update the usage of yesterday and today."""
    services.update_usage_days()


@shared_task(name="usage.measure_storage", time_limit=600)
def measure_storage() -> None:
    """Measure the stored bytes of all workspaces."""
    storage.measure()
