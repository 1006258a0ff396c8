"""Excludes runs that are pending deletion from reads.

A trace is deleted in batches, and a worker may be killed between two of them; readers must not see
the remaining runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.core.json import loads
from apps.trace_store.filters.builders import metadata_filter
from apps.trace_store.postgres.filtering import compile_where
from apps.trace_store.postgres.filtering.compiler import bound_by_root_sql

_PENDING_DELETIONS = (
    "SELECT d.project_id, d.trace_ids, d.metadata::text, d.created_at FROM tracing_tracedeletion d"
    " WHERE d.workspace_id = %s AND d.status = 'pending'"
    " UNION ALL SELECT p.id, NULL, NULL, NULL FROM tracing_project p"
    " WHERE p.workspace_id = %s AND p.deleted_at IS NOT NULL"
)


def exclude_deleted(workspace_id: UUID) -> tuple[str, list[Any]]:
    """The condition of runs whose trace and project are not pending deletion.

    The pending deletions are read separately: there are rarely any, and the planner would
    overestimate a subquery.
    """
    with raw_cursor() as cursor:
        cursor.execute(_PENDING_DELETIONS, [workspace_id, workspace_id], binary=True)
        rows = cursor.fetchall()
    projects = [project_id for project_id, trace_ids, *_ in rows if trace_ids is None]
    traces = [(row[0], trace_id) for row in rows for trace_id in row[1] or ()]
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
        trace_projects, trace_ids = map(list, zip(*traces, strict=True))
        values += [trace_ids, trace_projects, trace_ids]
    for project_id, _, metadata, requested_at in rows:
        if metadata:
            text, parameters = _exclude_metadata(
                workspace_id, project_id, loads(metadata), requested_at
            )
            conditions.append(text)
            values += parameters
    return " AND ".join(conditions), values


def _exclude_metadata(
    workspace_id: UUID, project_id: UUID, metadata: Mapping[str, Any], requested_at: datetime
) -> tuple[str, list[Any]]:
    """The condition of runs in whose trace no run had the metadata when the deletion was requested.

    It reads the trace of each run, which costs time while such a deletion is pending.
    """
    matching = compile_where(workspace_id, metadata_filter(metadata), table="matching")
    text = (
        "NOT EXISTS (SELECT FROM trace_store_run matching WHERE matching.workspace_id = %s"
        " AND matching.project_id = %s AND matching.project_id = r.project_id"
        f" AND matching.trace_id = r.trace_id AND {bound_by_root_sql('matching', 'r')}"
        f" AND matching.received_at <= %s AND ({matching.sql}))"
    )
    return text, [workspace_id, project_id, requested_at, *matching.values]
