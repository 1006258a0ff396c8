"""Excludes runs that are pending deletion from reads.

A trace is deleted in batches, and a worker may be killed between two of them; readers must not see
the remaining runs.
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
    """The condition of runs whose trace and project are not pending deletion.

    The pending deletions are read separately: there are rarely any, and the planner would
    overestimate a subquery.
    """
    with raw_cursor() as cursor:
        cursor.execute(_PENDING_DELETIONS, [workspace_id, workspace_id], binary=True)
        rows = cursor.fetchall()
    projects = [project_id for project_id, trace_ids, *_ in rows if trace_ids is None]
    traces = [(item[0], trace_id) for item in rows for trace_id in item[1] or ()]
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
    for project_id, _, metadata, asked_at in rows:
        if metadata:
            text, given = _exclude_metadata(workspace_id, project_id, loads(metadata), asked_at)
            conditions.append(text)
            values += given
    return " AND ".join(conditions), values


def _exclude_metadata(
    workspace_id: UUID, project_id: UUID, metadata: Mapping[str, Any], asked_at: datetime
) -> tuple[str, list[Any]]:
    """The condition of runs in whose trace no run had the metadata when the deletion was requested.

    It reads the trace of each run, which costs time while such a deletion is pending.
    """
    meant = compile_where(workspace_id, metadata_filter(metadata), table="meant")
    text = (
        "NOT EXISTS (SELECT FROM trace_store_run meant WHERE meant.workspace_id = %s"
        " AND meant.project_id = %s AND meant.project_id = r.project_id"
        f" AND meant.trace_id = r.trace_id AND {since_root('meant', 'r')}"
        f" AND meant.received_at <= %s AND ({meant.sql}))"
    )
    return text, [workspace_id, project_id, asked_at, *meant.values]
