"""Usage by workspace, read from the run counts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.tracing.models import TraceTier
from apps.usage.meter import Figures

# A trace is long-lived by its project's tier or by an upgrade.
_USAGE_SQL = """
WITH workspace_counts AS (
    SELECT c.workspace_id, sum(c.runs) AS runs, sum(c.traces) AS traces,
           sum(c.traces) FILTER (WHERE p.trace_tier = %(long)s) AS long_lived
    FROM trace_store_runcount c
    LEFT JOIN tracing_project p ON p.id = c.project_id AND p.workspace_id = c.workspace_id
    WHERE c.hour >= %(begin)s AND c.hour < %(end)s
      AND (%(workspaces)s::uuid[] IS NULL OR c.workspace_id = ANY(%(workspaces)s))
    GROUP BY c.workspace_id
), upgraded AS (
    SELECT workspace_id, count(*) AS long_lived FROM trace_store_retainedtrace
    WHERE created_at >= %(begin)s AND created_at < %(end)s
      AND (%(workspaces)s::uuid[] IS NULL OR workspace_id = ANY(%(workspaces)s))
    GROUP BY workspace_id
)
SELECT c.workspace_id, c.runs::int8, c.traces::int8,
       least(c.traces, coalesce(c.long_lived, 0) + coalesce(upgraded.long_lived, 0))::int8
FROM workspace_counts c LEFT JOIN upgraded USING (workspace_id)
"""


def collect_usage(begin: datetime, end: datetime, workspaces: Collection[UUID] | None) -> Figures:
    """Return runs, traces and long-lived traces by workspace."""
    values = {
        "begin": begin,
        "end": end,
        "workspaces": None if workspaces is None else list(workspaces),
        "long": str(TraceTier.LONG),
    }
    with raw_cursor() as cursor:
        cursor.execute(_USAGE_SQL, values)
        return {
            workspace_id: {"runs": runs, "traces": traces, "longlived_traces": long_lived}
            for workspace_id, runs, traces, long_lived in cursor
        }
