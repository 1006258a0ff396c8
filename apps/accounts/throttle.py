"""How often somebody may try to sign in."""

from __future__ import annotations

from django.http import HttpRequest
from redis import RedisError

from apps.core import errors
from apps.rate_limits.counters import count_custom
from apps.rate_limits.identity import network

PER_PERSON = 20, 600
PER_ADDRESS = 200, 600


def take(request: HttpRequest, email: str) -> bool:
    """Count an attempt; False when this address has used up its tries, for this email or at all.

    Refused with 503 while the counters cannot be reached: guessing must not become free.
    """
    address = network(request.META["REMOTE_ADDR"])
    try:
        person = count_custom("sign-in.person", f"{address} {email.strip().lower()}", PER_PERSON)
        anybody = count_custom("sign-in.address", address, PER_ADDRESS)
    except RedisError:
        raise errors.Unavailable from None
    return not (person.is_over or anybody.is_over)
