"""Removing runs for good, with all that the store keeps beside them.

Each function takes some and tells what it took, in the caller's transaction: what else is known
about those runs goes with them there, and the files they had are written down as doomed.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.json import loads
from apps.trace_store.postprocess import Touched, queue
from apps.trace_store.store import partitions, trees
from apps.trace_store.store.large_payloads import paths_in
from apps.trace_store.store.raw import raw_cursor, sql

BATCH = 2000
_KEY = ("workspace_id", "id", "project_id", "placed_at")


@dataclass(frozen=True, slots=True)
class RemovedRun:
    """A run that was there."""

    id: UUID
    project_id: UUID
    trace_id: UUID
    placed_at: datetime
    is_root: bool
    files: Sequence[str]
    """In object storage: attachments, and payloads that are too large for a row."""

    @property
    def key(self) -> tuple[UUID, UUID, datetime]:
        return self.id, self.project_id, self.placed_at


def remove_of_project(
    workspace_id: UUID, project_id: UUID, *, limit: int = BATCH
) -> list[RemovedRun]:
    """Some runs of the project, the oldest first."""
    return _remove(
        workspace_id, "project_id = %s ORDER BY placed_at, id LIMIT %s", [project_id, limit]
    )


def remove_of_traces(
    workspace_id: UUID, project_id: UUID, trace_ids: Collection[UUID], *, limit: int = BATCH
) -> list[RemovedRun]:
    """Some runs of these traces as the project has them."""
    return _remove(
        workspace_id,
        "trace_id = ANY(%s) AND project_id = %s ORDER BY placed_at, id LIMIT %s",
        [list(trace_ids), project_id, limit],
    )


def _remove(workspace_id: UUID, which: str, values: Sequence[Any]) -> list[RemovedRun]:
    # The rows are taken first: of two that remove at once, each gets its own.
    select = (
        f"SELECT {', '.join(_KEY)}, trace_id, parent_run_id, attachments::text FROM tracing_run r"
        f" WHERE workspace_id = %s AND {which} FOR UPDATE SKIP LOCKED"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(select), [workspace_id, *values], binary=True)
        removed = [
            RemovedRun(
                id=row[1],
                project_id=row[2],
                placed_at=row[3],
                trace_id=row[4],
                is_root=row[5] is None,
                files=[one["path"] for one in loads(row[6] or "{}").values()],
            )
            for row in cursor
        ]
    if removed:
        apart = _delete(workspace_id, removed)
        trees.forget(workspace_id, {run.trace_id for run in removed if run.is_root})
        removed = [replace(run, files=[*run.files, *apart.get(run.key, [])]) for run in removed]
        queue.append(
            workspace_id,
            (Touched(run.id, run.project_id, run.placed_at, run.trace_id) for run in removed),
        )
    return removed


def _delete(
    workspace_id: UUID, removed: Sequence[RemovedRun]
) -> dict[tuple[UUID, UUID, datetime], list[str]]:
    """Delete the rows; return the objects that their payloads were in, by run."""
    times = [run.placed_at for run in removed]
    keys = [[run.id for run in removed], [run.project_id for run in removed], times]
    found: dict[tuple[UUID, UUID, datetime], list[str]] = {}
    with raw_cursor() as cursor:
        for table in partitions.TABLES:
            paths = paths_in("t") if table == "tracing_runpayload" else "ARRAY[]::text[]"
            cursor.execute(
                sql(
                    f"DELETE FROM {table} t"
                    " USING unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
                    " AS k(id, project_id, placed_at)"
                    " WHERE t.workspace_id = %s AND t.id = k.id AND t.project_id = k.project_id"
                    " AND t.placed_at = k.placed_at AND t.placed_at BETWEEN %s AND %s"
                    f" RETURNING t.id, t.project_id, t.placed_at, {paths}"
                ),
                [*keys, workspace_id, min(times), max(times)],
            )
            found |= {(row[0], row[1], row[2]): row[3] for row in cursor if row[3]}
    return found
