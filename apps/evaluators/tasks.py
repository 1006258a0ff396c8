"""The tasks of evaluators."""

from __future__ import annotations

from typing import Any

from celery import shared_task, signals

from apps.core.loop_worker import LazyLoopWorker
from apps.evaluators.services import evaluations
from apps.playground.call_worker import CallWorker

evaluation_worker = LazyLoopWorker(lambda: CallWorker(evaluations.EvaluationQueue(), "evaluations"))
"""The worker of this process."""


@signals.worker_shutdown.connect
def stop_evaluations(**_: Any) -> None:
    """Stop the evaluations of this process; another one makes them again after their lease."""
    evaluation_worker.stop()


@shared_task(name="evaluators.evaluate", acks_late=False, time_limit=60)
def evaluate() -> None:
    """Wake the evaluations of this process, which claim what is due. Safe to repeat."""
    if evaluations.has_due():
        evaluation_worker.wake()
