"""Enqueues the tasks of evaluators after commit."""

from __future__ import annotations

from functools import partial

from celery import current_app
from django.db import transaction


def evaluate() -> None:
    """Let a worker look for due evaluations; a lost message is repeated by the periodic task."""
    send = partial(current_app.send_task, "evaluators.evaluate", expires=5)
    transaction.on_commit(send, robust=True)
