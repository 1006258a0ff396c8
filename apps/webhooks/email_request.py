"""Sends an email from a delivery worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core.mail import EmailMessage

from apps.webhooks.delivery_request import DeliveryResult


@dataclass(frozen=True, slots=True)
class EmailRequest:
    """A text to addresses that the app has checked."""

    subject: str
    text: str
    recipients: Sequence[str]


async def send_email(request: EmailRequest) -> DeliveryResult:
    """Send the email once. Failures are returned, not raised."""
    if not settings.EMAIL_HOST:
        return DeliveryResult(error="This installation has no mail server.", is_final=True)
    if not request.recipients:
        return DeliveryResult(error="No recipient is a member any more.", is_final=True)
    try:
        await asyncio.to_thread(_send, request)
    except OSError as error:  # `smtplib` derives its errors from it
        return DeliveryResult(error=f"The mail server failed: {type(error).__name__}.")
    return DeliveryResult()


def _send(request: EmailRequest) -> None:
    # Line breaks are refused in a header, and members choose the names in it.
    subject = " ".join(request.subject.split())
    # One message for each recipient, so that none sees the addresses of the others.
    for recipient in request.recipients:
        EmailMessage(subject, request.text, None, [recipient]).send()
