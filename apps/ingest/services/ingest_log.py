"""What came in, hour by hour: stored, merged, refused with reason, removed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from apps.core.json import loads
from apps.ingest.models import DeferredOperation
from apps.trace_store.store.raw import raw_cursor

# The keys of a page first, then what is known of them: no sum is made that nobody sees.
_PAGE = """
WITH keys AS (
    SELECT hour, project_id FROM tracing_runcount
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
    FROM tracing_runcount c
    WHERE c.workspace_id = %(workspace)s AND c.hour = page.hour AND c.project_id = page.project_id
) c
CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(reason, count)::text AS reasons FROM ingest_rejectioncount r
    WHERE r.workspace_id = %(workspace)s AND r.hour = page.hour
      AND r.project_id IS NOT DISTINCT FROM page.project_id
) r
ORDER BY page.hour DESC, page.project_id NULLS LAST
"""
_REFUSE = """
INSERT INTO ingest_rejectioncount (created_at, workspace_id, project_id, hour, reason, count)
SELECT now(), %s, said.project_id, date_trunc('hour', now(), 'UTC'), said.reason, said.count
FROM unnest(%s::uuid[], %s::text[], %s::int8[]) AS said(project_id, reason, count)
ORDER BY 3, 5
ON CONFLICT (workspace_id, hour, project_id, reason)
DO UPDATE SET count = ingest_rejectioncount.count + excluded.count
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHour:
    """What an hour brought to a project; without a project, what was for none that is known."""

    hour: datetime
    project_id: UUID | None
    project_name: str | None
    """None for a project that is gone."""
    stored: int
    """Runs that were not there before."""
    traces: int
    """Of those, the roots."""
    merged: int
    """Runs that were there and took an update, or came again."""
    removed: int
    """Runs that were deleted in this hour, or had lived long enough."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How many were refused, by reason."""

    @property
    def refused(self) -> int:
        return sum(self.reasons.values())

    @property
    def received(self) -> int:
        """All that came: what was accepted is stored."""
        return self.stored + self.merged + self.refused


def hours(
    workspace_id: UUID,
    *,
    begin: datetime,
    end: datetime,
    project_id: UUID | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[LedgerHour]:
    """The hours from `begin` until `end` in which something came, the newest first."""
    values = {
        "workspace": workspace_id,
        "begin": begin.replace(minute=0, second=0, microsecond=0),
        "end": end,
        "project": project_id,
        "limit": limit,
        "offset": offset,
    }
    with raw_cursor() as cursor:
        cursor.execute(_PAGE, values)
        return [
            LedgerHour(
                hour=hour,
                project_id=project,
                project_name=name,
                stored=stored,
                traces=traces,
                merged=merged,
                removed=removed,
                reasons=loads(reasons or "{}"),
            )
            for hour, project, name, stored, traces, merged, removed, reasons in cursor
        ]


def waiting(workspace_id: UUID) -> int:
    """How many operations wait for a run that has not come yet: kept, and not stored."""
    return DeferredOperation.objects.for_workspace(workspace_id).count()


def count_refusals(workspace_id: UUID, refusals: Counter[tuple[UUID | None, str]]) -> None:
    """Add to the ledger what a request brought in vain."""
    if not refusals:
        return
    projects = [project_id for project_id, _ in refusals]
    reasons = [reason for _, reason in refusals]
    with raw_cursor() as cursor:
        cursor.execute(_REFUSE, [workspace_id, projects, reasons, list(refusals.values())])
