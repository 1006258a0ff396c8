"""Enqueues the tasks of deliveries by name."""

from __future__ import annotations

from celery import current_app
from django.db import transaction


def deliver() -> None:
    """Wake the senders after commit. A periodic task also wakes them, so a lost message is late."""
    transaction.on_commit(_send, robust=True)


def _send() -> None:
    current_app.send_task("webhooks.deliver")
