"""Enqueues the tasks of exports by name."""

from __future__ import annotations

from celery import current_app
from django.db import transaction


def run_exports() -> None:
    """Enqueue the task after commit. A periodic task also sends it, in case the message is lost."""
    transaction.on_commit(send_run_exports, robust=True)


def send_run_exports() -> None:
    current_app.send_task("exports.run_exports")
