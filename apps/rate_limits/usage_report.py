"""An organization's current use of its limits, and its recent rejections."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, cast
from uuid import UUID

import redis
from django.conf import settings

from apps.api_keys.models import ApiKey
from apps.organizations.models import User
from apps.rate_limits import counters
from apps.rate_limits.cache import REDIS_TIMEOUT_SECONDS
from apps.rate_limits.counters import scale_limit
from apps.rate_limits.factors import factor_for
from apps.rate_limits.table import ROWS, IdentityKind, Row

DAYS = 8
MAX_IDENTITIES = 2000
"""Limit on the identities read, far above what one organization has active."""


@dataclass(frozen=True, slots=True)
class RowUsage:
    """The organization's use of one row."""

    row: Row
    limit: int
    seconds: int
    factor: float
    count: int
    """The highest count of an identity in its current interval."""
    identity_name: str
    active: int
    """Number of keys or users with current counts."""
    rejected: int
    """Rejected requests of the last days, including today."""

    @property
    def span(self) -> str:
        """The interval, such as `10 min`."""
        for unit, name in ((3600, "h"), (60, "min")):
            if self.seconds % unit == 0:
                return f"{self.seconds // unit} {name}"
        return f"{self.seconds} s"

    @property
    def share(self) -> int:
        return min(100, round(100 * self.count / self.limit))


@dataclass(frozen=True, slots=True)
class UsageReport:
    rows: list[RowUsage]
    is_known: bool
    """Whether Redis was available; if not, every count is 0."""


def build_usage_report(organization_id: UUID) -> UsageReport:
    """Return the use of every row by key or user; rows by address have no organization."""
    try:
        counts, rejected = _load_counts(organization_id), _load_rejections(organization_id)
    except redis.RedisError:
        counts, rejected, is_known = {}, Counter[str](), False
    else:
        is_known = True
    names = _load_names({value for row_counts in counts.values() for value in row_counts})
    usages = []
    for row in ROWS:
        if row.identity is IdentityKind.IP:
            continue
        factor = factor_for(organization_id, row.category)
        limit = row.limit(settings.REGION)
        row_counts = counts.get(row.name, {})
        top = max(row_counts, key=row_counts.__getitem__, default="")
        usages.append(
            RowUsage(
                row,
                scale_limit(limit.requests, factor),
                limit.seconds,
                factor,
                row_counts.get(top, 0),
                names.get(top.partition(" ")[0], ""),
                len(row_counts),
                rejected[row.name],
            )
        )
    return UsageReport(usages, is_known)


def _load_counts(organization_id: UUID) -> dict[str, dict[str, int]]:
    """Return the current counts by row and identity."""
    active_key, _ = counters.statistics_keys(organization_id)
    members: Any = _client().zrange(
        active_key,
        int(time.time()),
        cast("int", "+inf"),
        byscore=True,
        offset=0,
        num=MAX_IDENTITIES,
    )
    pairs = [member.decode().rsplit("|", 1) for member in members]
    by_name = {row.name: row for row in ROWS}
    pairs = [(name, value) for name, value in pairs if name in by_name]
    keys = [counters.counter_key(by_name[name], value) for name, value in pairs]
    counts: dict[str, dict[str, int]] = {}
    for (name, value), count in zip(pairs, _client().mget(keys) if keys else (), strict=True):
        if count is not None:
            counts.setdefault(name, {})[value] = int(count)
    return counts


def _load_rejections(organization_id: UUID) -> Counter[str]:
    today = int(time.time()) // 86_400
    pipeline = _client().pipeline(transaction=False)
    for day in range(today - DAYS + 1, today + 1):
        pipeline.hgetall(counters.statistics_keys(organization_id, day)[1])
    rejections: Counter[str] = Counter()
    for day_counts in pipeline.execute():
        rejections.update({name.decode(): int(count) for name, count in day_counts.items()})
    return rejections


def _load_names(values: set[str]) -> dict[str, str]:
    """Map ids to names of keys and email addresses of users."""
    ids = {value.partition(" ")[0] for value in values}
    keys = ApiKey.objects.filter(pk__in=ids).values_list("pk", "name")
    users = User.objects.filter(pk__in=ids).values_list("pk", "email")
    return {str(pk): name for pk, name in [*keys, *users]}


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=REDIS_TIMEOUT_SECONDS * 4,
        socket_connect_timeout=REDIS_TIMEOUT_SECONDS,
    )
