"""What an organization uses of its limits now, and which of them it has run into."""

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
from apps.rate_limits.cache import ANSWER_SECONDS
from apps.rate_limits.counters import scaled
from apps.rate_limits.factors import factor_for
from apps.rate_limits.table import ROWS, IdentityKind, Row

DAYS = 8
MOST_SHOWN = 2000
"""Identities whose counts are looked at; far more than ask at once in any organization."""


@dataclass(frozen=True, slots=True)
class RowUsage:
    """One row as it stands for the organization."""

    row: Row
    limit: int
    seconds: int
    factor: float
    count: int
    """Of the one identity that used most of it in its present interval."""
    who: str
    active: int
    """How many keys, or people with their addresses, are counted on it now."""
    refused: int
    """Requests in the last days, today's among them."""

    @property
    def span(self) -> str:
        """The interval, as people say it."""
        for unit, name in ((3600, "h"), (60, "min")):
            if self.seconds % unit == 0:
                return f"{self.seconds // unit} {name}"
        return f"{self.seconds} s"

    @property
    def share(self) -> int:
        return min(100, round(100 * self.count / self.limit))


@dataclass(frozen=True, slots=True)
class Use:
    rows: list[RowUsage]
    is_known: bool
    """Whether Redis could be asked; if not, every count is nought."""


def build_usage_report(organization_id: UUID) -> Use:
    """Every row that counts by key or by person; those by address belong to no organization."""
    try:
        counts, refused = _counts(organization_id), _refused(organization_id)
    except redis.RedisError:
        counts, refused, is_known = {}, Counter[str](), False
    else:
        is_known = True
    names = _names({value for of_row in counts.values() for value in of_row})
    found = []
    for row in ROWS:
        if row.identity is IdentityKind.IP:
            continue
        factor = factor_for(organization_id, row.category)
        limit = row.limit(settings.REGION)
        of_row = counts.get(row.name, {})
        top = max(of_row, key=of_row.__getitem__, default="")
        found.append(
            RowUsage(
                row,
                scaled(limit.requests, factor),
                limit.seconds,
                factor,
                of_row.get(top, 0),
                names.get(top.partition(" ")[0], ""),
                len(of_row),
                refused[row.name],
            )
        )
    return Use(found, is_known)


def _counts(organization_id: UUID) -> dict[str, dict[str, int]]:
    """What is counted now, by row and identity."""
    seen, _ = counters.keys_of(organization_id)
    members: Any = _client().zrange(
        seen, int(time.time()), cast("int", "+inf"), byscore=True, offset=0, num=MOST_SHOWN
    )
    pairs = [member.decode().rsplit("|", 1) for member in members]
    by_name = {row.name: row for row in ROWS}
    known = [(name, value) for name, value in pairs if name in by_name]
    asked = [counters.key_of(by_name[name], value) for name, value in known]
    counts: dict[str, dict[str, int]] = {}
    for (name, value), count in zip(known, _client().mget(asked) if asked else (), strict=True):
        if count is not None:
            counts.setdefault(name, {})[value] = int(count)
    return counts


def _refused(organization_id: UUID) -> Counter[str]:
    today = int(time.time()) // 86_400
    pipeline = _client().pipeline(transaction=False)
    for day in range(today - DAYS + 1, today + 1):
        pipeline.hgetall(counters.keys_of(organization_id, day)[1])
    refused: Counter[str] = Counter()
    for of_day in pipeline.execute():
        refused.update({name.decode(): int(count) for name, count in of_day.items()})
    return refused


def _names(values: set[str]) -> dict[str, str]:
    """Keys and people by their ids, as their organization calls them."""
    ids = {value.partition(" ")[0] for value in values}
    keys = ApiKey.objects.filter(pk__in=ids).values_list("pk", "name")
    people = User.objects.filter(pk__in=ids).values_list("pk", "email")
    return {str(pk): name for pk, name in [*keys, *people]}


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=ANSWER_SECONDS * 4, socket_connect_timeout=ANSWER_SECONDS
    )
