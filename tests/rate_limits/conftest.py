"""Fixtures that turn the limits on, without cached factors and counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from django.conf import settings as django_settings

from apps.api_keys.services import clear_cache
from apps.rate_limits import cache, factors

# Set once, before the first connection: on a busy machine Redis may take longer than 0.25 s, and
# requests would then pass uncounted.
cache.REDIS_TIMEOUT_SECONDS = 10


def delete_counts(url: str) -> None:
    client = redis.Redis.from_url(url)
    for pattern in ("rl:*", "limits:*"):
        if keys := list(client.scan_iter(pattern, count=1000)):
            client.delete(*keys)
    client.close()


def preset_count(url: str, count: int) -> None:
    """Set the only counter that there is; its expiry stays."""
    client = redis.Redis.from_url(url)
    [key] = client.scan_iter("rl:*", count=1000)
    assert int(client.get(key)) == 1
    client.set(key, count, keepttl=True)
    client.close()


@pytest.fixture
def limits(settings, monkeypatch) -> Iterator[None]:
    """Enforce the rate-limit table in this process.

    Counters expire late, because a test may stop the clock.
    """
    monkeypatch.setattr("django_ratelimit.core.EXPIRATION_FUDGE", 600)
    settings.RATE_LIMIT_FACTOR = 1.0
    factors.clear_cache()
    clear_cache()
    delete_counts(django_settings.REDIS_URL)
    yield
    factors.clear_cache()
