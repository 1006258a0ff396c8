"""Enqueues tasks by name, so that services do not import the task module."""

from __future__ import annotations

from functools import partial

from celery import current_app
from django.db import transaction


def compute_formulas() -> None:
    """Enqueue the task after commit. Celery beat also sends it, in case the message is lost."""
    send = partial(current_app.send_task, "feedback.compute_formulas")
    transaction.on_commit(send, robust=True)
