"""Celery tasks of alerts."""

from __future__ import annotations

from celery import shared_task

from apps.alerts.services import evaluation

SLICE_SECONDS = 10.0
"""Less than the period of the task, so that one evaluation does not wait for another."""


@shared_task(name="alerts.evaluate", time_limit=300, acks_late=False, expires=15)
def evaluate() -> None:
    """Evaluate due rules. Safe to repeat: each is claimed, and no window is evaluated twice."""
    evaluation.evaluate_due(SLICE_SECONDS)
