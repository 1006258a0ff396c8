"""Removing runs for good, payloads and files with them."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from uuid import UUID

from django.core.files.storage import default_storage
from django.db import transaction

from apps.core.json import loads
from apps.tracing.store.raw import raw_cursor, sql

_BATCH = 5000
_KEY = "workspace_id, id, project_id, placed_at"
_REMOVE = f"""
WITH chosen AS (
    SELECT {_KEY} FROM tracing_run WHERE project_id = %s AND workspace_id = %s
    ORDER BY placed_at, id LIMIT {_BATCH}
), runs AS (
    DELETE FROM tracing_run r USING chosen s
    WHERE r.workspace_id = s.workspace_id AND r.id = s.id AND r.project_id = s.project_id
      AND r.placed_at = s.placed_at
    RETURNING r.workspace_id, r.id, r.project_id, r.placed_at, r.attachments::text AS attachments
), payloads AS (
    DELETE FROM tracing_runpayload p USING chosen s
    WHERE p.workspace_id = s.workspace_id AND p.id = s.id AND p.project_id = s.project_id
      AND p.placed_at = s.placed_at
)
SELECT attachments FROM runs
"""


def remove_runs_of(workspace_id: UUID, project_id: UUID) -> int:
    """Remove all runs of the project, batch by batch; return how many there were."""
    removed = 0
    while True:
        with transaction.atomic(), raw_cursor() as cursor:
            cursor.execute(sql(_REMOVE), [project_id, workspace_id])
            rows = cursor.fetchall()
        # After the commit: a file without a run is waste, a run without its file is a loss.
        for (attachments,) in rows:
            for one in loads(attachments or "{}").values():
                default_storage.delete(one["path"])
        removed += len(rows)
        if len(rows) < _BATCH:
            return removed
