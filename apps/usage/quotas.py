"""Whether a workspace may bring more: asked at each request with runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Sum

from apps.core.ttl_cache import TTLCache
from apps.organizations.models import Workspace
from apps.usage import usage_sources
from apps.usage.errors import UsageLimitExceeded
from apps.usage.models import LimitType, UsageDay, UsageLimit

CACHE_SECONDS = 3.0
_LONGEST_WAIT = 60


@dataclass(frozen=True, slots=True)
class Use:
    """A cap and what was used of it."""

    limit: UsageLimit
    used: int
    until: datetime

    @property
    def kind(self) -> LimitType:
        return LimitType(self.limit.limit_type)

    @property
    def is_exceeded(self) -> bool:
        return self.used >= self.limit.limit_value

    @property
    def share(self) -> float:
        """Of what may be used, at most 1."""
        value = self.limit.limit_value
        return min(self.used / value, 1.0) if value else 1.0

    def sentence(self) -> str:
        measure = self.kind.measure.replace("_", " ").replace("longlived", "long-lived")
        whose = "workspace" if self.limit.workspace_id else "organization"
        period = self.kind.period
        return (
            f"{period.capitalize()}ly usage limit exceeded: this {whose} has used {self.used:,} of"
            f" {self.limit.limit_value:,} {measure} in this {period}, which ends at"
            f" {self.until:%Y-%m-%d %H:%M} UTC."
        )


# None for nearly everybody, so that a request costs a look at a dictionary.
_known: TTLCache[UUID, Use | None] = TTLCache(CACHE_SECONDS)


def check(workspace_id: UUID) -> None:
    """Raise `UsageLimitExceeded` while a cap of the workspace or its organization is reached.

    The view is at most seconds old, so what comes within them is let in.
    """
    reached = _known.get(workspace_id, _reached)
    if reached is None or reached.until <= datetime.now(UTC):
        return
    left = (reached.until - datetime.now(UTC)).total_seconds()
    wait = min(int(left) + 1, _LONGEST_WAIT) if reached.kind.period == "hour" else None
    raise UsageLimitExceeded(reached.sentence(), until=reached.until, retry_after=wait)


def forget() -> None:
    """Drop what this process knows."""
    _known.clear()


def _reached(workspace_id: UUID) -> Use | None:
    exceeded = [use for use in uses(workspace_id) if use.is_exceeded]
    # The one that lasts longest is the reason worth telling.
    return max(exceeded, key=lambda use: use.until, default=None)


def uses(workspace_id: UUID) -> list[Use]:
    """Every cap that binds the workspace, with what is used now."""
    limits = list(UsageLimit.objects.on(workspace_id).order_by("limit_type", "workspace"))
    return _used(limits, workspace_id) if limits else []


def _used(limits: list[UsageLimit], workspace_id: UUID) -> list[Use]:
    now = datetime.now(UTC)
    sums: dict[tuple[bool, str], dict[str, float]] = {}
    found = []
    for limit in limits:
        kind = LimitType(limit.limit_type)
        place = limit.workspace_id is not None, kind.period
        if place not in sums:
            workspaces = [workspace_id] if limit.workspace_id else _all_of(limit.organization_id)
            sums[place] = _sums(workspaces, kind.period, now)
        used = int(sums[place].get(kind.measure, 0))
        found.append(Use(limit, used, span(kind.period, now)[1]))
    return found


def span(period: str, now: datetime) -> tuple[datetime, datetime]:
    """The hour or the month that it is."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    if period == "hour":
        return hour, hour + timedelta(hours=1)
    month = hour.replace(day=1, hour=0)
    return month, (month + timedelta(days=32)).replace(day=1)


def _sums(workspaces: list[UUID], period: str, now: datetime) -> dict[str, float]:
    begin, end = span(period, now)
    if period == "hour":
        return usage_sources.total(begin, end, workspaces)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    sums = usage_sources.total(today, end, workspaces)
    days = UsageDay.objects.across_workspaces(reason="the workspaces of one organization")
    past = days.filter(workspace__in=workspaces, day__gte=begin, day__lt=today)
    measures = {kind.measure for kind in LimitType}
    for measure, value in past.aggregate(**{name: Sum(name) for name in measures}).items():
        sums[measure] = sums.get(measure, 0) + (value or 0)
    return sums


def _all_of(organization_id: UUID) -> list[UUID]:
    of_it = Workspace.objects.filter(organization_id=organization_id)
    return list(of_it.values_list("pk", flat=True))
