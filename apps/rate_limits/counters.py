"""Exact request counters across processes.

django-ratelimit's core computes the interval and the counter's key; `cache` counts. Intervals are
fixed windows with an offset per identity, the same in every process. An organization's factor
scales the limit, not the counter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django_ratelimit.core import get_usage

from apps.core import errors
from apps.rate_limits.cache import CountRequest, counting
from apps.rate_limits.identity import Identity
from apps.rate_limits.table import Row

_NO_REQUEST: Any = None
"""The core passes its request only to callable keys and rates; ours do not use it."""


@dataclass(frozen=True, slots=True)
class RequestCount:
    """The counter after a request."""

    category: str
    limit: int
    seconds: int
    count: int
    reset_at: int
    """Unix time at which the next interval begins."""

    @property
    def is_over(self) -> bool:
        return self.count > self.limit

    def headers(self) -> dict[str, str]:
        headers = {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(0, self.limit - self.count)),
            "X-RateLimit-Reset": str(self.reset_at),
            "X-RateLimit-Category": self.category,
        }
        if self.is_over:
            headers["Retry-After"] = str(self.retry_after)
        return headers

    @property
    def retry_after(self) -> int:
        return max(1, self.reset_at - int(time.time()))


class LimitReached(errors.RateLimited):
    """The limit of a row is exceeded; `usage` has the numbers."""

    def __init__(self, usage: RequestCount) -> None:
        self.usage = usage
        super().__init__(
            f"Rate limit exceeded for {usage.category}: at most {usage.limit} requests in"
            f" {usage.seconds} seconds. Retry in {usage.retry_after} seconds."
        )
        self.headers = usage.headers()


def scale_limit(count: int, factor: float) -> int:
    """Return the limit of `count` requests multiplied by `factor`, at least 1."""
    return max(1, round(count * factor))


def count(row: Row, identity: Identity, factor: float = 1.0) -> RequestCount:
    """Count one request. Raises `redis.RedisError`."""
    nominal = row.limit(settings.REGION)
    request = CountRequest(limit=scale_limit(nominal.requests, factor))
    if identity.organization_id is not None:
        request.active_key, request.rejected_key = statistics_keys(identity.organization_id)
        request.member = f"{row.name}|{identity.value}"
        request.row = row.name
        request.now = int(time.time())
        request.until = request.now + nominal.seconds
    return _count(f"limits|{row.name}|", identity.value, tuple(nominal), row.category, request)


def count_custom(name: str, value: str, limit: tuple[int, int]) -> RequestCount:
    """Count on a limit that is not in the table, as (requests, seconds)."""
    return _count(f"limits.own|{name}|", value, limit, name, CountRequest(limit=limit[0]))


def _count(
    group: str, value: str, rate: tuple[int, ...], category: str, request: CountRequest
) -> RequestCount:
    window = _get_usage(group, value, rate, request, increment=True)
    return RequestCount(
        category=category,
        limit=request.limit,
        seconds=rate[1],
        count=window["count"],
        # The core calls the last second of the interval its window.
        reset_at=int(time.time()) + window["time_left"] + 1,
    )


def counter_key(row: Row, value: str) -> str:
    """Return the Redis key of the identity's counter in the current interval."""
    request, rate = CountRequest(is_key_lookup=True), tuple(row.limit(settings.REGION))
    _get_usage(f"limits|{row.name}|", value, rate, request, increment=False)
    return request.key


def _get_usage(
    group: str, value: str, rate: tuple[int, ...], request: CountRequest, *, increment: bool
) -> dict[str, Any]:
    token = counting.set(request)
    try:
        usage: dict[str, Any] = get_usage(
            _NO_REQUEST, group=group, key=lambda *_: f"{value}|", rate=rate, increment=increment
        )
        return usage
    finally:
        counting.reset(token)


def statistics_keys(organization_id: UUID, day: int | None = None) -> tuple[str, str]:
    """Return the Redis keys of the organization's active identities and a day's rejections."""
    day = int(time.time()) // 86_400 if day is None else day
    return f"limits:seen:{organization_id}", f"limits:hits:{organization_id}:{day}"
