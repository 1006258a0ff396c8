"""Celery tasks of API keys."""

from __future__ import annotations

from celery import shared_task

from apps.api_keys.services import client_sign_in


@shared_task(name="api_keys.end_client_sessions", time_limit=300, acks_late=False)
def end_client_sessions() -> None:
    """Revoke the keys of client sessions that are over. Safe to run twice."""
    client_sign_in.end_sessions()
