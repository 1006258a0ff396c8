"""Enqueues the tasks of the playground after commit."""

from __future__ import annotations

from functools import partial

from celery import current_app
from django.conf import settings
from django.db import transaction

from apps.playground import due_signal


def execute_calls() -> None:
    """Let a worker look for due calls; a lost message is repeated by the periodic task."""
    connection = transaction.get_connection()
    # One message for all calls of a transaction.
    if any(getattr(entry[1], "func", None) is _send for entry in connection.run_on_commit):
        return
    transaction.on_commit(partial(_send), robust=True)


def _send() -> None:
    if settings.PLAYGROUND_PROCESSES:
        due_signal.send()
        return
    current_app.send_task("playground.execute_calls", expires=5)
