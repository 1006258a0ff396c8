"""Periodic tasks. Each may run twice, or late."""

from __future__ import annotations

from celery import shared_task, signals


@signals.worker_ready.connect
def start_meter(**_: object) -> None:
    """Start the meter for agent runs."""
    from apps.usage import meter  # noqa: PLC0415  (the apps are loaded by now)

    meter.start()


@shared_task(name="usage.update_usage_days", time_limit=300)
def update_usage_days() -> None:
    """Update the usage of yesterday and today."""
    from apps.usage import services  # noqa: PLC0415  (tasks and services import each other)

    services.update_usage_days()
