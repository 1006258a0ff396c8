"""What is about to be deleted is not shown any more, however far its deletion has come.

A trace goes batch by batch, and a worker may be killed between two; nobody should meet the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.json import loads
from apps.core.raw_sql import raw_cursor
from apps.trace_store.filters.builders import metadata_filter
from apps.trace_store.postgres.filtering import compile_where
from apps.trace_store.postgres.filtering.compiler import since_root

_PENDING_DELETIONS = (
    "SELECT d.project_id, d.trace_ids, d.metadata::text, d.created_at FROM tracing_tracedeletion d"
    " WHERE d.workspace_id = %s AND d.status = 'pending'"
    " UNION ALL SELECT p.id, NULL, NULL, NULL FROM tracing_project p"
    " WHERE p.workspace_id = %s AND p.deleted_at IS NOT NULL"
)


def exclude_deleted(workspace_id: UUID) -> tuple[str, list[Any]]:
    """True of runs that nobody has asked to delete, by their trace or with their project.

    Looked up here, not in the statement: there is hardly ever any, and the planner would take a
    list that it does not know for half of all runs.
    """
    with raw_cursor() as cursor:
        cursor.execute(_PENDING_DELETIONS, [workspace_id, workspace_id], binary=True)
        found = cursor.fetchall()
    projects = [project_id for project_id, trace_ids, *_ in found if trace_ids is None]
    traces = [(one[0], trace_id) for one in found for trace_id in one[1] or ()]
    conditions: list[str] = ["true"]
    values: list[Any] = []
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
    for project_id, _, metadata, asked_at in found:
        if metadata:
            text, given = _exclude_metadata(workspace_id, project_id, loads(metadata), asked_at)
            conditions.append(text)
            values += given
    return " AND ".join(conditions), values


def _exclude_metadata(
    workspace_id: UUID, project_id: UUID, metadata: Mapping[str, Any], asked_at: datetime
) -> tuple[str, list[Any]]:
    """True of runs in whose trace none had the metadata when the deletion was asked for.

    It looks beside each run, which costs something while such a deletion goes on.
    """
    meant = compile_where(workspace_id, metadata_filter(metadata), table="meant")
    text = (
        "NOT EXISTS (SELECT FROM trace_store_run meant WHERE meant.workspace_id = %s"
        " AND meant.project_id = %s AND meant.project_id = r.project_id"
        f" AND meant.trace_id = r.trace_id AND {since_root('meant', 'r')}"
        f" AND meant.received_at <= %s AND ({meant.sql}))"
    )
    return text, [workspace_id, project_id, asked_at, *meant.values]
