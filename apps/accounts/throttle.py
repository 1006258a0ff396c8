"""Throttling of sign-in attempts."""

from __future__ import annotations

from django.http import HttpRequest
from redis import RedisError

from apps.core import errors
from apps.rate_limits.counters import count_custom
from apps.rate_limits.identity import network

MAX_PER_EMAIL = 20, 600
MAX_PER_ADDRESS = 200, 600
"""Attempts and seconds."""


def consume(request: HttpRequest, email: str) -> bool:
    """Count an attempt; False if the client address exceeded its limit, for the email or in total.

    Raises `Unavailable` without Redis, so that password guessing stays limited.
    """
    address = network(request.META["REMOTE_ADDR"])
    try:
        by_email = count_custom(
            "sign-in.person", f"{address} {email.strip().lower()}", MAX_PER_EMAIL
        )
        by_address = count_custom("sign-in.address", address, MAX_PER_ADDRESS)
    except RedisError:
        raise errors.Unavailable from None
    return not (by_email.is_over or by_address.is_over)
