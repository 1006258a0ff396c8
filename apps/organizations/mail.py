"""Invitation emails."""

from __future__ import annotations

import logging
from uuid import UUID

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone

from apps.organizations.models import Invitation
from apps.organizations.services import invitations

log = logging.getLogger(__name__)
BATCH_SIZE = 100


def send_invitations() -> int:
    """Send the unsent invitations and return their number; a failed one is retried later.

    Without a mail server nothing is sent; the inviter copies the link from the page.
    """
    if not settings.EMAIL_HOST:
        return 0
    ids = list(Invitation.objects.unsent().order_by("pk").values_list("pk", flat=True)[:BATCH_SIZE])
    return sum(_send(pk) for pk in ids)


@transaction.atomic
def _send(pk: UUID) -> bool:
    # The process that locks the row sends the email; others skip it.
    rows = Invitation.objects.unsent().select_for_update(skip_locked=True, of=("self",))
    row = rows.select_related("organization", "invited_by").filter(pk=pk).first()
    if row is None:
        return False
    inviter = row.invited_by.display_name if row.invited_by else row.organization.name
    context = {"invitation": row, "inviter": inviter, "link": invitations.invitation_url(row)}
    try:
        send_mail(
            subject=f"{inviter} invites you to {row.organization.name}".replace("\n", " "),
            message=render_to_string("organizations/invitation.txt", context),
            from_email=None,
            recipient_list=[row.email],
        )
    except OSError as error:
        log.warning("Sending an invitation email failed: %s", type(error).__name__)
        return False
    Invitation.objects.filter(pk=row.pk).update(mailed_at=timezone.now())
    return True
