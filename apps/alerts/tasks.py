"""Celery tasks of alerts."""

from __future__ import annotations

from celery import shared_task

from apps.alerts import dispatch
from apps.alerts.services import evaluation, rules

SLICE_SECONDS = 10.0
"""Less than the period of the task, so that one evaluation does not wait for another."""
MAX_TASKS = 3
"""At the same time, each for another organization."""


@shared_task(name="alerts.evaluate", time_limit=300, acks_late=False, expires=15)
def evaluate() -> None:
    """Evaluate due rules. Safe to repeat: each is claimed, and no window is evaluated twice."""
    rules.close_incidents_of_deleted_scopes()
    rules.delete_unused_actions()
    for _ in range(evaluation.count_due_organizations(MAX_TASKS) - 1):
        dispatch.evaluate_rules()
    evaluation.evaluate_due(SLICE_SECONDS)


@shared_task(name="alerts.evaluate_rules", time_limit=300, acks_late=False, expires=15)
def evaluate_rules() -> None:
    """Evaluate due rules next to `evaluate`. Safe to repeat."""
    evaluation.evaluate_due(SLICE_SECONDS)
