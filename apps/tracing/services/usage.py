"""Usage by workspace, from the run counts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.core.raw_sql import raw_cursor
from apps.tracing.models import TraceTier
from apps.usage.usage_sources import Figures

# A trace is long-lived by its project's tier or by an upgrade.
_USAGE_SQL = """
WITH counted AS (
    SELECT c.workspace_id, sum(c.runs) AS runs, sum(c.traces) AS traces,
           sum(c.traces) FILTER (WHERE p.trace_tier = %(long)s) AS lasting
    FROM tracing_runcount c
    LEFT JOIN tracing_project p ON p.id = c.project_id AND p.workspace_id = c.workspace_id
    WHERE c.hour >= %(begin)s AND c.hour < %(end)s
      AND (%(some)s::uuid[] IS NULL OR c.workspace_id = ANY(%(some)s))
    GROUP BY c.workspace_id
), kept AS (
    SELECT workspace_id, count(*) AS lasting FROM tracing_retainedtrace
    WHERE created_at >= %(begin)s AND created_at < %(end)s
      AND (%(some)s::uuid[] IS NULL OR workspace_id = ANY(%(some)s))
    GROUP BY workspace_id
)
SELECT c.workspace_id, c.runs::int8, c.traces::int8,
       least(c.traces, coalesce(c.lasting, 0) + coalesce(kept.lasting, 0))::int8
FROM counted c LEFT JOIN kept USING (workspace_id)
"""


def collect_usage(begin: datetime, end: datetime, workspaces: Collection[UUID] | None) -> Figures:
    """Return runs, traces and long-lived traces by workspace."""
    some = None if workspaces is None else list(workspaces)
    values = {"begin": begin, "end": end, "some": some, "long": str(TraceTier.LONG)}
    with raw_cursor() as cursor:
        cursor.execute(_USAGE_SQL, values)
        return {
            workspace_id: {"runs": runs, "traces": traces, "longlived_traces": lasting}
            for workspace_id, runs, traces, lasting in cursor
        }
