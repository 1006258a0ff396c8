"""The state of a webhook delivery, stored by the apps that have deliveries."""

from __future__ import annotations

from django.db.models import TextChoices


class DeliveryStatus(TextChoices):
    """The state of a webhook delivery."""

    DUE = "due"
    SENDING = "sending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
