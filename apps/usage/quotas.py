"""Enforcement of usage limits at ingest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Sum

from apps.core import errors
from apps.core.ttl_cache import TTLCache
from apps.organizations.models import Workspace
from apps.usage import meter
from apps.usage.models import LimitType, UsageDay, UsageLimit


class UsageLimitExceeded(errors.RateLimited):
    """A limit of the workspace or its organization is used up for the hour or month."""

    code, detail = "usage_limit_exceeded", "A usage limit is exceeded."

    def __init__(self, detail: str, *, until: datetime, retry_after: int | None) -> None:
        super().__init__(detail, [{"resets_at": until.isoformat()}])
        # Clients sleep for Retry-After, so a monthly limit sends none.
        self.headers = (
            {"x-should-retry": "false"}
            if retry_after is None
            else {"Retry-After": str(retry_after)}
        )


CACHE_SECONDS = 3.0
_MAX_RETRY_AFTER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """A limit and its current use."""

    limit: UsageLimit
    used: int
    until: datetime

    @property
    def limit_type(self) -> LimitType:
        return LimitType(self.limit.limit_type)

    @property
    def is_exceeded(self) -> bool:
        return self.used >= self.limit.limit_value

    @property
    def share(self) -> float:
        """The used share, at most 1."""
        value = self.limit.limit_value
        return min(self.used / value, 1.0) if value else 1.0

    def message(self) -> str:
        measure = self.limit_type.measure.replace("_", " ").replace("longlived", "long-lived")
        owner = "workspace" if self.limit.workspace_id else "organization"
        period = self.limit_type.period
        return (
            f"{period.capitalize()}ly usage limit exceeded: this {owner} has used {self.used:,} of"
            f" {self.limit.limit_value:,} {measure} in this {period}, which ends at"
            f" {self.until:%Y-%m-%d %H:%M} UTC."
        )


# None for nearly all workspaces: the check is then one dictionary access.
_exceeded_limits: TTLCache[UUID, LimitUsage | None] = TTLCache(CACHE_SECONDS)


def check(workspace_id: UUID) -> None:
    """Raise `UsageLimitExceeded` while a limit of the workspace or organization is used up.

    The usage may be a few seconds old, so a limit can be exceeded by that much.
    """
    exceeded = _exceeded_limits.get(workspace_id, _find_exceeded)
    if exceeded is None or exceeded.until <= datetime.now(UTC):
        return
    retry_after = None
    if exceeded.limit_type.period == "hour":
        seconds_left = int((exceeded.until - datetime.now(UTC)).total_seconds())
        retry_after = min(seconds_left + 1, _MAX_RETRY_AFTER_SECONDS)
    raise UsageLimitExceeded(exceeded.message(), until=exceeded.until, retry_after=retry_after)


def clear_cache() -> None:
    """Clear the cache of this process."""
    _exceeded_limits.clear()


def _find_exceeded(workspace_id: UUID) -> LimitUsage | None:
    exceeded = [use for use in list_limit_usages(workspace_id) if use.is_exceeded]
    # Report the limit that resets last.
    return max(exceeded, key=lambda use: use.until, default=None)


def list_limit_usages(workspace_id: UUID) -> list[LimitUsage]:
    """List the limits that apply to the workspace with their current use."""
    limits = list(UsageLimit.objects.applying_to(workspace_id).order_by("limit_type", "workspace"))
    return _measure_limits(limits, workspace_id) if limits else []


def _measure_limits(limits: list[UsageLimit], workspace_id: UUID) -> list[LimitUsage]:
    now = datetime.now(UTC)
    sums: dict[tuple[bool, str], dict[str, float]] = {}
    usages = []
    for limit in limits:
        limit_type = LimitType(limit.limit_type)
        key = limit.workspace_id is not None, limit_type.period
        if key not in sums:
            workspaces = (
                [workspace_id] if limit.workspace_id else _workspaces_of(limit.organization_id)
            )
            sums[key] = _sum_usage(workspaces, limit_type.period, now)
        used_amount = int(sums[key].get(limit_type.measure, 0))
        usages.append(LimitUsage(limit, used_amount, period_bounds(limit_type.period, now)[1]))
    return usages


def period_bounds(period: str, now: datetime) -> tuple[datetime, datetime]:
    """Return begin and end of the current hour or month."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    if period == "hour":
        return hour, hour + timedelta(hours=1)
    month = hour.replace(day=1, hour=0)
    return month, (month + timedelta(days=32)).replace(day=1)


def _sum_usage(workspaces: list[UUID], period: str, now: datetime) -> dict[str, float]:
    begin, end = period_bounds(period, now)
    if period == "hour":
        return meter.total_of_sources(begin, end, workspaces)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    sums = meter.total_of_sources(today, end, workspaces)
    days = UsageDay.objects.across_workspaces(reason="the workspaces of one organization")
    past = days.filter(workspace__in=workspaces, day__gte=begin, day__lt=today)
    measures = {limit_type.measure for limit_type in LimitType}
    for measure, value in past.aggregate(**{name: Sum(name) for name in measures}).items():
        sums[measure] = sums.get(measure, 0) + (value or 0)
    return sums


def _workspaces_of(organization_id: UUID) -> list[UUID]:
    workspaces = Workspace.objects.filter(organization_id=organization_id)
    return list(workspaces.values_list("pk", flat=True))
