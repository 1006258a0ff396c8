"""What is about to be deleted is not shown any more, however far its deletion has come.

A trace goes batch by batch, and a worker may be killed between two; nobody should meet the rest.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

_NOT_DOOMED = (
    "(r.project_id, r.trace_id) NOT IN (SELECT d.project_id, unnest(d.trace_ids)"
    " FROM tracing_tracedeletion d WHERE d.workspace_id = %s AND d.status = 'pending')"
    " AND r.project_id NOT IN (SELECT p.id FROM tracing_project p"
    " WHERE p.workspace_id = %s AND p.deleted_at IS NOT NULL)"
)


def not_doomed(workspace_id: UUID) -> tuple[str, list[Any]]:
    """True of runs that nobody has asked to delete by their trace or with their project.

    Both lists are looked up once for a statement, and are empty but for the while of a deletion.
    """
    return _NOT_DOOMED, [workspace_id, workspace_id]
