"""Periodic tasks. Each may run twice, or late."""

from __future__ import annotations

from celery import shared_task

from apps.billing import services


@shared_task(name="billing.open_accounts", time_limit=300)
def open_accounts() -> None:
    """Create missing billing accounts."""
    services.open_accounts()
