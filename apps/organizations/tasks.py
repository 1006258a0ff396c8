"""Celery tasks of organizations."""

from __future__ import annotations

from celery import shared_task

from apps.organizations.services import invitations


@shared_task(name="organizations.mail_invitations", time_limit=300, acks_late=False)
def mail_invitations() -> None:
    """Send the unsent invitation emails. Safe to run twice: each row is locked."""
    invitations.send_invitations()
