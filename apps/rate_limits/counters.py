"""CountRequest a request on its row, exactly, whichever process it reached.

django-ratelimit's core says which interval it is and under which key it is counted; `cache` counts.
Intervals are fixed: they begin at another second for each identity, and at the same for all
processes. The factor of an organization moves the limit, not the counter.
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

_ANYBODY: Any = None
"""The core passes its request on to keys and rates that are functions; ours are values."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request found when it was counted."""

    category: str
    limit: int
    seconds: int
    count: int
    reset_at: int
    """The second in which the next interval begins."""

    @property
    def is_over(self) -> bool:
        return self.count > self.limit

    def headers(self) -> dict[str, str]:
        found = {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(0, self.limit - self.count)),
            "X-RateLimit-Reset": str(self.reset_at),
            "X-RateLimit-Category": self.category,
        }
        if self.is_over:
            found["Retry-After"] = str(self.retry_after)
        return found

    @property
    def retry_after(self) -> int:
        return max(1, self.reset_at - int(time.time()))


class LimitReached(errors.RateLimited):
    """A row's limit is used up; `usage` has the numbers."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        super().__init__(
            f"{usage.category}: at most {usage.limit} requests in {usage.seconds} seconds."
            f" Send again in {usage.retry_after} seconds."
        )
        self.headers = usage.headers()


def scaled(count: int, factor: float) -> int:
    """The limit under a factor; whoever has one may always ask once."""
    return max(1, round(count * factor))


def count(row: Row, who: Identity, factor: float = 1.0) -> Usage:
    """Count one request. Raises `redis.RedisError` while nobody can count."""
    nominal = row.limit(settings.REGION)
    note = CountRequest(limit=scaled(nominal.requests, factor))
    if who.organization_id is not None:
        note.seen, note.hits = keys_of(who.organization_id)
        note.member = f"{row.name}|{who.value}"
        note.row = row.name
        note.now = int(time.time())
        note.until = note.now + nominal.seconds
    return _counted(f"limits|{row.name}|", who.value, tuple(nominal), row.category, note)


def count_custom(name: str, value: str, limit: tuple[int, int]) -> Usage:
    """The same on a limit that is no row of the table: so many in so many seconds."""
    return _counted(f"limits.own|{name}|", value, limit, name, CountRequest(limit=limit[0]))


def _counted(
    group: str, value: str, rate: tuple[int, ...], category: str, note: CountRequest
) -> Usage:
    found = _asking_the_core(group, value, rate, note, increment=True)
    return Usage(
        category=category,
        limit=note.limit,
        seconds=rate[1],
        count=found["count"],
        # An interval ends with the second that the core calls its window.
        reset_at=int(time.time()) + found["time_left"] + 1,
    )


def key_of(row: Row, value: str) -> str:
    """Where Redis has the count of that identity in the present interval."""
    note, rate = CountRequest(is_looked_for=True), tuple(row.limit(settings.REGION))
    _asking_the_core(f"limits|{row.name}|", value, rate, note, increment=False)
    return note.key


def _asking_the_core(
    group: str, value: str, rate: tuple[int, ...], note: CountRequest, *, increment: bool
) -> dict[str, Any]:
    token = counting.set(note)
    try:
        found: dict[str, Any] = get_usage(
            _ANYBODY, group=group, key=lambda *_: f"{value}|", rate=rate, increment=increment
        )
        return found
    finally:
        counting.reset(token)


def keys_of(organization_id: UUID, day: int | None = None) -> tuple[str, str]:
    """Where Redis notes who counts for the organization, and what it was refused on a day."""
    day = int(time.time()) // 86_400 if day is None else day
    return f"limits:seen:{organization_id}", f"limits:hits:{organization_id}:{day}"
