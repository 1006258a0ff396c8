"""The ingest log: by hour and project, runs stored, merged, rejected with reason, and removed.

It also counts the token attributes that no vocabulary has, see `unread_usage`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.core.json import loads
from apps.ingest.models import DeferredOperation
from apps.ingest.services import unread_usage

_COUNT_REJECTIONS = """
INSERT INTO ingest_rejectioncount (created_at, workspace_id, project_id, hour, reason, count)
SELECT now(), %s, added.project_id, date_trunc('hour', now(), 'UTC'), added.reason, added.count
FROM unnest(%s::uuid[], %s::text[], %s::int8[]) AS added(project_id, reason, count)
ORDER BY 3, 5
ON CONFLICT (workspace_id, hour, project_id, reason)
DO UPDATE SET count = ingest_rejectioncount.count + excluded.count
"""
# Selects the keys of the page first, so that only visible rows are summed.
_SELECT_HOURS = """
WITH keys AS (
    SELECT hour, project_id FROM trace_store_runcount
    WHERE workspace_id = %(workspace)s AND hour >= %(begin)s AND hour < %(end)s
      AND (%(project)s::uuid IS NULL OR project_id = %(project)s)
    UNION
    SELECT hour, project_id FROM ingest_rejectioncount
    WHERE workspace_id = %(workspace)s AND hour >= %(begin)s AND hour < %(end)s
      AND (%(project)s::uuid IS NULL OR project_id = %(project)s)
), page AS (
    SELECT * FROM keys ORDER BY hour DESC, project_id NULLS LAST LIMIT %(limit)s OFFSET %(offset)s
)
SELECT page.hour, page.project_id, p.name, c.stored, c.traces, c.merged, c.removed, r.reasons
FROM page
LEFT JOIN tracing_project p ON p.id = page.project_id AND p.workspace_id = %(workspace)s
CROSS JOIN LATERAL (
    SELECT coalesce(sum(runs), 0)::bigint AS stored, coalesce(sum(traces), 0)::bigint AS traces,
           coalesce(sum(merged), 0)::bigint AS merged,
           coalesce(sum(removed_runs), 0)::bigint AS removed
    FROM trace_store_runcount c
    WHERE c.workspace_id = %(workspace)s AND c.hour = page.hour AND c.project_id = page.project_id
) c
CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(reason, count)::text AS reasons FROM ingest_rejectioncount r
    WHERE r.workspace_id = %(workspace)s AND r.hour = page.hour
      AND r.project_id IS NOT DISTINCT FROM page.project_id
) r
ORDER BY page.hour DESC, page.project_id NULLS LAST
"""


def count_rejections(workspace_id: UUID, counts: Counter[tuple[UUID | None, str]]) -> None:
    """Add rejected items, counted by project and reason."""
    if not counts:
        return
    projects = [project_id for project_id, _ in counts]
    reasons = [reason for _, reason in counts]
    with raw_cursor() as cursor:
        params = [workspace_id, projects, reasons, list(counts.values())]
        cursor.execute(_COUNT_REJECTIONS, params)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHour:
    """One hour of one project; without a project, items rejected before it was resolved."""

    hour: datetime
    project_id: UUID | None
    project_name: str | None
    """None for a deleted project."""
    stored: int
    """New runs."""
    traces: int
    """New runs that are roots."""
    merged: int
    """Existing runs that were updated or sent again."""
    removed: int
    """Runs that were deleted or expired in this hour."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rejected items by reason."""
    unread_usage: Mapping[str, int] = field(default_factory=dict)
    """Runs by the name of a token attribute that was not read."""

    @property
    def refused(self) -> int:
        return sum(self.reasons.values())

    @property
    def received(self) -> int:
        return self.stored + self.merged + self.refused


def list_hours(
    workspace_id: UUID,
    *,
    begin: datetime,
    end: datetime,
    project_id: UUID | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[LogHour]:
    """The hours from `begin` until `end` with any entry, newest first."""
    params = {
        "workspace": workspace_id,
        "begin": begin.replace(minute=0, second=0, microsecond=0),
        "end": end,
        "project": project_id,
        "limit": limit,
        "offset": offset,
    }
    with raw_cursor() as cursor:
        cursor.execute(_SELECT_HOURS, params)
        rows = list(cursor)
    hours = []
    for hour, project, name, stored, traces, merged, removed, counts in rows:
        reasons, names = _split_counts(loads(counts or "{}"))
        hours.append(
            LogHour(
                hour=hour,
                project_id=project,
                project_name=name,
                stored=stored,
                traces=traces,
                merged=merged,
                removed=removed,
                reasons=reasons,
                unread_usage=names,
            )
        )
    return hours


def _split_counts(counts: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The rejected items by reason, and the runs by name of an attribute that was not read."""
    prefix = unread_usage.REASON_PREFIX
    reasons = {reason: count for reason, count in counts.items() if not reason.startswith(prefix)}
    names = {
        reason.removeprefix(prefix): counts[reason]
        for reason in sorted(counts.keys() - reasons.keys())
    }
    return reasons, names


def count_deferred(workspace_id: UUID) -> int:
    """The number of accepted operations that await a run."""
    return DeferredOperation.objects.for_workspace(workspace_id).count()
