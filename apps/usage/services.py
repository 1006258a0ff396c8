"""Daily usage and usage limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Sum

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.ids import uuid7
from apps.core.tenancy import get_or_404
from apps.usage import meter, quotas
from apps.usage.models import MEASURES, LimitType, UsageDay, UsageLimit, UsageLimitQuerySet

_UPDATED_DAYS = 2
"""Includes yesterday, whose last counts arrive after midnight."""

# Values never decrease: deleted runs still count as used.
_SET = """
INSERT INTO usage_usageday (id, created_at, workspace_id, day, {names})
SELECT usage.id, now(), usage.workspace_id, %s, {columns}
FROM unnest(%s::uuid[], %s::uuid[], {types}) AS usage(id, workspace_id, {names})
JOIN organizations_workspace w ON w.id = usage.workspace_id
ON CONFLICT (workspace_id, day) DO UPDATE SET {assignments}
"""


def update_usage_days(now: datetime | None = None) -> None:
    """Update yesterday and today of every workspace with usage. Safe to repeat and to race.

    A missed update is made up by the next call on the same or the next day.
    """
    now = now or datetime.now(UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for days_ago in range(_UPDATED_DAYS):
        begin = today - timedelta(days=days_ago)
        for figures in meter.collect_sources(begin, begin + timedelta(days=1), None):
            _upsert_days(begin.date(), figures)
    meter.delete_old_counters(now)


def _upsert_days(day: date, figures: meter.Figures) -> None:
    if not figures:
        return
    names = [name for name in MEASURES if any(name in measures for measures in figures.values())]
    columns = [[int(measures.get(name, 0)) for measures in figures.values()] for name in names]
    statement = _SET.format(
        names=", ".join(names),
        columns=", ".join(f"usage.{name}" for name in names),
        types=", ".join("%s::int8[]" for _ in names),
        assignments=", ".join(f"{n} = greatest(usage_usageday.{n}, excluded.{n})" for n in names),
    )
    ids = [uuid7() for _ in figures]
    with connection.cursor() as cursor:
        cursor.execute(statement, [day, ids, list(figures), *columns])


def list_days(workspace_id: UUID, first: date, last: date) -> list[UsageDay]:
    """Return one row per day, also for days without usage; oldest first."""
    rows = UsageDay.objects.for_workspace(workspace_id).between(first, last)
    rows_by_day = {row.day: row for row in rows}
    span = range((last - first).days + 1)
    all_days = [first + timedelta(days=n) for n in span]
    return [
        rows_by_day.get(day) or UsageDay(workspace_id=workspace_id, day=day) for day in all_days
    ]


def sum_by_workspace(
    organization_id: UUID, first: date, last: date, workspace_ids: Collection[UUID] | None
) -> dict[UUID, dict[str, int]]:
    """Return the sum of each measure per workspace with usage, in all or in these workspaces."""
    rows = UsageDay.unscoped.filter(workspace__organization_id=organization_id)
    if workspace_ids is not None:
        rows = rows.filter(workspace_id__in=workspace_ids)
    sums = rows.between(first, last).values("workspace_id").order_by("workspace_id")
    totals = sums.annotate(**{f"total_{name}": Sum(name) for name in MEASURES})
    columns = [f"total_{name}" for name in MEASURES]
    return {
        workspace_id: dict(zip(MEASURES, map(int, values), strict=True))
        for workspace_id, *values in totals.values_list("workspace_id", *columns)
    }


@transaction.atomic
def set_limit(
    *,
    organization_id: UUID,
    workspace_id: UUID | None,
    limit_type: LimitType,
    limit_value: int,
) -> UsageLimit:
    """Create or change a limit of the workspace, or of the organization without one."""
    key: dict[str, Any] = {
        "organization_id": organization_id,
        "workspace_id": workspace_id,
        "limit_type": limit_type,
    }
    before = UsageLimit.objects.filter(**key).values("limit_value").first()
    limit, _ = UsageLimit.objects.update_or_create(**key, defaults={"limit_value": limit_value})
    _record(Action.USAGE_LIMIT_SET, limit, before, {"limit_value": limit_value})
    transaction.on_commit(quotas.clear_cache)
    return limit


@transaction.atomic
def delete_limit(*, limits: UsageLimitQuerySet, limit_id: UUID) -> None:
    """Delete one of the limits, which the caller may change."""
    limit = get_or_404(limits.select_for_update(), pk=limit_id)
    _record(Action.USAGE_LIMIT_DELETED, limit, {"limit_value": limit.limit_value}, None)
    limit.delete()
    transaction.on_commit(quotas.clear_cache)


def _record(
    action: Action,
    limit: UsageLimit,
    before: Mapping[str, object] | None,
    after: Mapping[str, object] | None,
) -> None:
    record(
        action,
        Target("usage_limit", limit.pk, limit.limit_type),
        before=before,
        after=after,
        organization_id=limit.organization_id,
        workspace_id=limit.workspace_id,
    )
