"""How often somebody may try to sign in."""

from __future__ import annotations

from django.http import HttpRequest
from django_ratelimit.core import is_ratelimited
from redis import RedisError

from apps.core import errors

PER_PERSON = "20/10m"
PER_ADDRESS = "200/10m"


def take(request: HttpRequest, email: str) -> bool:
    """Count an attempt; False when this address has used up its tries, for this email or at all.

    Refused with 503 while the counters cannot be reached: guessing must not become free.
    """
    try:
        person = is_ratelimited(
            request,
            group="sign-in.person",
            key=lambda _, request: f"{request.META['REMOTE_ADDR']} {email.strip().lower()}",
            rate=PER_PERSON,
            increment=True,
        )
        address = is_ratelimited(
            request, group="sign-in.address", key="ip", rate=PER_ADDRESS, increment=True
        )
    except RedisError:
        raise errors.Unavailable from None
    return not (person or address)
