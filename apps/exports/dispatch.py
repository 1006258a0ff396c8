"""Enqueues the tasks of exports by name."""

from __future__ import annotations

from celery import current_app
from django.db import transaction


def run_exports() -> None:
    """Start writing after the commit; the periodic task repeats a lost message."""
    transaction.on_commit(send_run_exports, robust=True)


def send_run_exports() -> None:
    current_app.send_task("exports.run_exports")
