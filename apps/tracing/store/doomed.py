"""What is about to be deleted is not shown any more, however far its deletion has come.

A trace goes batch by batch, and a worker may be killed between two; nobody should meet the rest.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.tracing.store.raw import raw_cursor

_DOOMED = (
    "SELECT d.project_id, unnest(d.trace_ids) FROM tracing_tracedeletion d"
    " WHERE d.workspace_id = %s AND d.status = 'pending'"
    " UNION ALL SELECT p.id, NULL FROM tracing_project p"
    " WHERE p.workspace_id = %s AND p.deleted_at IS NOT NULL"
)


def not_doomed(workspace_id: UUID) -> tuple[str, list[Any]]:
    """True of runs that nobody has asked to delete by their trace or with their project.

    Looked up here, not in the statement: there is hardly ever any, and the planner would take a
    list that it does not know for half of all runs.
    """
    with raw_cursor() as cursor:
        cursor.execute(_DOOMED, [workspace_id, workspace_id], binary=True)
        found: list[tuple[UUID, UUID | None]] = cursor.fetchall()
    projects = [project_id for project_id, trace_id in found if trace_id is None]
    traces = [(project_id, trace_id) for project_id, trace_id in found if trace_id is not None]
    conditions, values = ["true"], []
    if projects:
        conditions.append("r.project_id <> ALL(%s)")
        values.append(projects)
    if traces:
        conditions.append(
            "NOT (r.trace_id = ANY(%s) AND (r.project_id, r.trace_id) IN"
            " (SELECT * FROM unnest(%s::uuid[], %s::uuid[])))"
        )
        projects_of, trace_ids = map(list, zip(*traces, strict=True))
        values += [trace_ids, projects_of, trace_ids]
    return " AND ".join(conditions), values
