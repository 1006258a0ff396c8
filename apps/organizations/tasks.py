"""Celery's shells of what happens here beside requests."""

from __future__ import annotations

from celery import shared_task


@shared_task(name="organizations.mail_invitations", time_limit=300, acks_late=False)
def mail_invitations() -> None:
    """Send the mails of invitations that have not gone out. Safe to run twice: each is claimed."""
    from apps.organizations import mail  # noqa: PLC0415  (services import this module)

    mail.send_invitations()
