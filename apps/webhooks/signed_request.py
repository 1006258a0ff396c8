"""Requests to addresses that members of a workspace enter: policy, headers, signature, tests."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Mapping
from uuid import UUID

from django.conf import settings

from apps.core import errors as core_errors
from apps.webhooks import delivery_request, errors
from apps.webhooks.delivery_request import DeliveryResult, WebhookRequest
from apps.webhooks.policy import WebhookPolicy

MAX_HEADERS = 20
MAX_HEADER_LENGTH = 4096
MASK = "*" * 16
"""Replaces a secret value where it is shown."""
TEST_TIMEOUT_SECONDS = 5.0
_MAX_TESTS = 2
_test_slots = threading.BoundedSemaphore(_MAX_TESTS)
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection"}
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


def policy_of_installation() -> WebhookPolicy:
    """Public addresses; private ones where the operator allows them."""
    allows_private = settings.ALLOW_PRIVATE_ADDRESSES or settings.ALLOW_LOCAL_WEBHOOKS
    return WebhookPolicy(allows_private=allows_private)


def validate_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the additional headers of a webhook. Raises `InvalidHeaders`."""
    if len(headers) > MAX_HEADERS:
        raise errors.InvalidHeaders(f"A webhook has at most {MAX_HEADERS} headers.")
    for name, value in headers.items():
        if _HEADER_NAME.fullmatch(name) is None or _HEADER_VALUE.fullmatch(value) is None:
            raise errors.InvalidHeaders("The name or the value of a header is invalid.")
        if len(value) > MAX_HEADER_LENGTH:
            raise errors.InvalidHeaders(f"A header has at most {MAX_HEADER_LENGTH} characters.")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("webhook-"):
            raise errors.InvalidHeaders(f"The header `{name}` is set by this server.")
        if value == MASK:
            raise errors.InvalidHeaders("A masked header must be replaced by its value.")
    return dict(headers)


def build_signed_request(
    url: str, headers: Mapping[str, str], secret: str | None, message_id: str, body: bytes
) -> WebhookRequest:
    """Return the request, signed if there is a secret.

    Raises `WebhookBlocked` if the policy forbids the address now.
    """
    rules = policy_of_installation()
    keys = [secret] if secret is not None else []
    signature = (
        delivery_request.signature_headers(keys, message_id, int(time.time()), body) if keys else {}
    )
    return WebhookRequest(
        rules.parse_target(url),
        rules,
        {
            "user-agent": "Slipway-Webhook/1",
            **headers,
            "content-type": "application/json",
            **signature,
        },
        body,
    )


def send_once(request: WebhookRequest, *, owner_id: UUID) -> DeliveryResult:
    """Send a test request of an organization once.

    It holds a web thread, so a process runs few at a time. Raises `RateLimited` for more.
    """
    if not _test_slots.acquire(blocking=False):
        raise core_errors.RateLimited("Other webhooks are being tested. Retry in a moment.")
    try:
        return asyncio.run(
            delivery_request.send(request, owner_id=owner_id, seconds=TEST_TIMEOUT_SECONDS)
        )
    finally:
        _test_slots.release()
