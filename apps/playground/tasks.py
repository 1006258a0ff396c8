"""The tasks of the playground."""

from __future__ import annotations

from typing import Any

from celery import shared_task, signals
from django.conf import settings

from apps.playground.call_worker import call_worker
from apps.playground.services import model_calls


@signals.worker_shutdown.connect
def stop_calls(**_: Any) -> None:
    """Stop the calls of this process; another one makes them again after their lease."""
    call_worker.stop()


@shared_task(name="playground.execute_calls", acks_late=False, time_limit=60)
def execute_calls() -> None:
    """Wake the calls of this process, which claim what is due. Safe to repeat.

    Processes of the playground's own look for due calls themselves.
    """
    if not settings.PLAYGROUND_PROCESSES and model_calls.has_due():
        call_worker.wake()


@shared_task(name="playground.delete_old_calls", acks_late=False, time_limit=3600)
def delete_old_calls() -> None:
    """Delete the calls of jobs that ended a day ago. Safe to repeat."""
    model_calls.delete_old()
