"""What tracing tells of the use of workspaces, from its ledger."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.core.raw_sql import raw_cursor
from apps.tracing.models import TraceTier
from apps.usage.usage_sources import Figures

# A trace is long-lived by its project, or because it was worth more than that.
_INGESTED = """
WITH counted AS (
    SELECT c.workspace_id, sum(c.runs) AS runs, sum(c.traces) AS traces,
           sum(c.traces) FILTER (WHERE p.trace_tier = %(long)s) AS lasting
    FROM tracing_runcount c
    LEFT JOIN tracing_project p ON p.id = c.project_id AND p.workspace_id = c.workspace_id
    WHERE c.hour >= %(begin)s AND c.hour < %(end)s
      AND (%(some)s::uuid[] IS NULL OR c.workspace_id = ANY(%(some)s))
    GROUP BY c.workspace_id
), kept AS (
    SELECT workspace_id, count(*) AS lasting FROM tracing_kepttrace
    WHERE created_at >= %(begin)s AND created_at < %(end)s
      AND (%(some)s::uuid[] IS NULL OR workspace_id = ANY(%(some)s))
    GROUP BY workspace_id
)
SELECT c.workspace_id, c.runs::int8, c.traces::int8,
       least(c.traces, coalesce(c.lasting, 0) + coalesce(kept.lasting, 0))::int8
FROM counted c LEFT JOIN kept USING (workspace_id)
"""


def ingested(begin: datetime, end: datetime, workspaces: Collection[UUID] | None) -> Figures:
    """Runs, traces, and those of them that live long, by workspace."""
    some = None if workspaces is None else list(workspaces)
    values = {"begin": begin, "end": end, "some": some, "long": str(TraceTier.LONG)}
    with raw_cursor() as cursor:
        cursor.execute(_INGESTED, values)
        return {
            workspace_id: {"runs": runs, "traces": traces, "longlived_traces": lasting}
            for workspace_id, runs, traces, lasting in cursor
        }
