"""Errors of webhooks and their deliveries."""

from __future__ import annotations

from apps.core import errors


class InvalidHeaders(errors.Invalid):
    code, detail = "invalid_webhook_headers", "A header is invalid."


class InvalidWebhookAddress(errors.Invalid):
    code, detail = "invalid_webhook_address", "`url` must be an absolute address."


class DeliveryUnfinished(errors.Conflict):
    code, detail = "delivery_unfinished", "The delivery is still being sent."
