"""Operations of the endpoints that members of a workspace enter: address, secret, deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.json import dumps
from apps.core.secrets import decrypt, encrypt
from apps.webhooks import delivery_queue, delivery_request, errors, policy
from apps.webhooks.delivery_request import WebhookRequest
from apps.webhooks.models import Delivery, DeliveryQuerySet, WebhookEndpoint
from apps.webhooks.signed_request import (
    build_signed_request,
    policy_of_installation,
    validate_headers,
)

MAX_REPLAYED_PER_HOUR = 1000
"""Deliveries of a workspace in the last hour, beyond which a replay is given up."""


def assign_address(endpoint: WebhookEndpoint, fields: Mapping[str, Any]) -> None:
    """Set `url` and `headers`, if given. Raises `WebhookBlocked` or `InvalidHeaders`."""
    if "url" in fields:
        if fields["url"].startswith("/"):
            raise errors.InvalidWebhookAddress
        owner_id = endpoint.workspace.organization_id
        endpoint.url = policy.validate(fields["url"], policy_of_installation(), owner_id)
    if "headers" in fields:
        endpoint.headers = validate_headers(fields["headers"])


def set_new_secret(endpoint: WebhookEndpoint) -> str:
    """Set a new signing secret, without saving, and return it."""
    secret = delivery_request.generate_secret()
    endpoint.secret = encrypt(secret)
    return secret


def list_deliveries(endpoint: WebhookEndpoint) -> DeliveryQuerySet:
    """The deliveries of the endpoint, newest first."""
    rows = Delivery.objects.for_workspace(endpoint.workspace_id)
    return rows.filter(endpoint_id=endpoint.pk).newest_first()


def delete_with_deliveries(endpoint: WebhookEndpoint) -> None:
    """Delete the endpoint with its unsent deliveries and its log, in a transaction."""
    list_deliveries(endpoint).order_by().delete()
    endpoint.delete()


def replay(delivery: Delivery) -> Delivery:
    """Send the message again. Raises `DeliveryUnfinished`."""
    return delivery_queue.replay(delivery=delivery, max_per_hour=MAX_REPLAYED_PER_HOUR)


def build_endpoint_request(
    endpoint: WebhookEndpoint, delivery: Delivery, payload: Mapping[str, Any]
) -> WebhookRequest:
    """Return the signed request. Raises `WebhookBlocked`."""
    return build_signed_request(
        endpoint.url,
        endpoint.headers,
        decrypt(endpoint.secret),
        f"msg_{delivery.message_id}",
        dumps(payload),
    )
