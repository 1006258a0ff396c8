"""Tells the playground's own processes that calls of experiments are due.

Signals are redundant: those processes also look for due calls every two seconds.
"""

from __future__ import annotations

from functools import cache

import redis
from django.conf import settings

POLL_SECONDS = 2
_KEY = "slipway:playground:due"
_MAX_SIGNALS = 16
_LIFETIME_SECONDS = 10


@cache
def _client() -> redis.Redis:
    # The timeout is longer than a poll.
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=POLL_SECONDS + 3)


def send() -> None:
    """Let a process look for due calls. Raises `RedisError`."""
    with _client().pipeline() as pipe:
        pipe.rpush(_KEY, "due")
        pipe.ltrim(_KEY, -_MAX_SIGNALS, -1)
        pipe.expire(_KEY, _LIFETIME_SECONDS)
        pipe.execute()


def wait() -> None:
    """Return after a signal, at the latest after `POLL_SECONDS`. Raises `RedisError`."""
    _client().blpop([_KEY], timeout=POLL_SECONDS)
