"""The functions that build the requests of deliveries, by the kind of the delivery.

The apps that insert deliveries register them, because they are in higher layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from apps.webhooks.delivery_request import DeliveryResult
from apps.webhooks.delivery_worker import OutboundRequest
from apps.webhooks.models import Delivery
from apps.webhooks.policy import WebhookBlocked

log = logging.getLogger(__name__)

RequestBuilder = Callable[[Delivery], OutboundRequest | DeliveryResult]
"""Returns the request, or the result if nothing is to be sent. May raise `WebhookBlocked`."""
_builders: dict[str, RequestBuilder] = {}


def register_request_builder(kind: str, builder: RequestBuilder) -> None:
    _builders[kind] = builder


def build_request(delivery: Delivery) -> OutboundRequest | DeliveryResult:
    """Return the request of the delivery. A failure is a result, so that others are sent."""
    builder = _builders.get(delivery.kind)
    if builder is None:
        return DeliveryResult(error="Deliveries of this kind are not supported.", is_final=True)
    try:
        return builder(delivery)
    except WebhookBlocked as error:
        return DeliveryResult(error=error.detail, is_final=True)
    except Exception:
        log.exception("The request of delivery %s cannot be built.", delivery.pk)
        return DeliveryResult(error="The request could not be built.")
