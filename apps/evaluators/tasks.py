"""The tasks of evaluators."""

from __future__ import annotations

from typing import Any

from celery import shared_task, signals

from apps.core.loop_worker import LazyLoopWorker
from apps.evaluators.services import backfills, code_queue, code_trials, evaluations
from apps.playground.call_worker import CallWorker

evaluation_worker = LazyLoopWorker(lambda: CallWorker(evaluations.EvaluationQueue(), "evaluations"))
code_worker = LazyLoopWorker(
    lambda: CallWorker(code_queue.CodeQueue(), "code-evaluations", code_queue.MAX_PROCESSES)
)
"""The workers of this process, for judges and for functions."""


@signals.worker_shutdown.connect
def stop_evaluations(**_: Any) -> None:
    """Stop the evaluations of this process; another one makes them again after their lease."""
    evaluation_worker.stop()
    code_worker.stop()


@shared_task(name="evaluators.evaluate", acks_late=False, time_limit=60)
def evaluate() -> None:
    """Wake the evaluations of this process, which claim what is due. Safe to repeat."""
    if evaluations.has_due():
        evaluation_worker.wake()
    if code_queue.has_due():
        code_worker.wake()


@shared_task(name="evaluators.advance_backfills", acks_late=False, time_limit=300)
def advance_backfills() -> None:
    """Enqueue a page of each running backfill. Safe to repeat."""
    backfills.advance()


@shared_task(name="evaluators.delete_old_trials", acks_late=False, time_limit=600)
def delete_old_trials() -> None:
    """Delete trials that no page waits for any more. Safe to repeat."""
    code_trials.delete_old()
