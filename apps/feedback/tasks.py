"""Scheduled tasks of feedback. Each task may run twice or late."""

from __future__ import annotations

from celery import shared_task

from apps.feedback.services import attach_to_runs, formulas, tokens


@shared_task(name="feedback.attach_to_runs", time_limit=300)
def attach_feedback_to_runs() -> None:
    """Attach pending feedback to its runs."""
    attach_to_runs.attach_pending()


@shared_task(name="feedback.compute_formulas", time_limit=3600)
def compute_formulas() -> None:
    """Apply new and changed formulas to existing feedback."""
    formulas.compute_stale()


@shared_task(name="feedback.delete_expired_tokens", time_limit=600)
def delete_expired_tokens() -> None:
    """Delete feedback tokens that expired long ago."""
    tokens.delete_expired()
