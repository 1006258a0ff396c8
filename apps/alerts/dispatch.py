"""Enqueues the tasks of alerts by name."""

from __future__ import annotations

from celery import current_app


def evaluate_rules() -> None:
    """Evaluate due rules in one more thread. A lost message makes evaluations late."""
    current_app.send_task("alerts.evaluate_rules")
