"""Reads of streams from PostgreSQL: stored events of resumable runs, and the runs of a thread.

The engine writes the events (`agent_runtime.runs.stream_persistence`) a tenth of a second after it
wrote them to Redis. The events outlive their run by RESUMABLE_STREAM_TTL_SECONDS.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import msgpack
from django.conf import settings
from django.db import connection

from apps.agent_server import errors, prepared_sql
from apps.agent_server.scope import Scope
from apps.agent_server.streaming.streams import Batch, EventId, unpack_batch


class FollowedRun(NamedTuple):
    """A run of a followed thread."""

    run_id: UUID
    graph_id: str
    is_open: bool
    is_resumable: bool
    has_newer_events: bool
    """Whether it may have events after the client's last one."""


_THREAD = """
SELECT id FROM agent_server_thread
WHERE workspace_id = %s AND deployment_id = %s AND thread_id = %s AND NOT temporary
  AND metadata @> %s::jsonb
"""
_FOLLOWED = """
SELECT r.id, r.graph_id, r.status = 'running', r.resumable,
    r.status = 'running' OR EXISTS (
        SELECT 1 FROM agent_server_streamedevents s WHERE s.run_id = r.id AND s.position > %s
    )
FROM agent_server_agentrun r
WHERE r.workspace_id = %s AND r.thread_id = %s AND (r.status = 'running' OR (
    r.resumable AND r.status <> 'pending'
    AND r.ended_at > clock_timestamp() - make_interval(secs => %s)))
ORDER BY r.sequence
"""
_EXISTS = """
SELECT 1 FROM agent_server_thread WHERE workspace_id = %s AND id = %s AND NOT temporary
"""


def find_thread_pk(scope: Scope, thread_id: UUID) -> UUID:
    """The primary key of a visible thread. Raises `ThreadNotFound`."""
    row = prepared_sql.fetch_row(_THREAD, [*scope.key, thread_id, scope.visible])
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    pk: UUID = row[0]
    return pk


def list_followed(scope: Scope, pk: UUID, after: EventId) -> list[FollowedRun] | None:
    """Running and recent resumable runs, in order; None if the thread was deleted."""
    workspace = scope.route.workspace_id
    if prepared_sql.fetch_row(_EXISTS, [workspace, pk]) is None:
        return None
    lifetime = float(settings.RESUMABLE_STREAM_TTL_SECONDS)
    rows = prepared_sql.fetch_rows(_FOLLOWED, [after.position, workspace, pk, lifetime])
    return [FollowedRun(*row) for row in rows]


ROWS_PER_READ = 20
"""Rows per read; a row holds about a tenth of a second, at most 256 KiB."""
DELETE_BATCH_SIZE = 2_000

_READ_AFTER = """
SELECT batches FROM agent_server_streamedevents
WHERE run_id = %s AND position > %s ORDER BY position LIMIT %s
"""
_DELETE_EXPIRED = """
DELETE FROM agent_server_streamedevents WHERE (run_id, position) IN (
    SELECT s.run_id, s.position
    FROM agent_server_streamedevents s LEFT JOIN agent_server_agentrun r ON r.id = s.run_id
    WHERE r.id IS NULL
       OR (r.status NOT IN ('pending', 'running')
           AND r.ended_at < clock_timestamp() - make_interval(secs => %s))
    LIMIT %s
)
"""


def read_after(run_id: UUID, event_id: EventId) -> list[Batch]:
    """The next stored batches after the event; an empty list if there are none.

    The caller must have checked access to the run: the rows have no workspace.
    """
    rows = prepared_sql.fetch_rows(_READ_AFTER, [run_id, event_id.position, ROWS_PER_READ])
    batches = [
        unpack_batch(packed) for (chunk,) in rows for packed in msgpack.unpackb(bytes(chunk))
    ]
    return [batch for batch in batches if batch.last > event_id]


def delete_expired() -> int:
    """Delete expired events in batches; return the number of rows."""
    total = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                _DELETE_EXPIRED, [settings.RESUMABLE_STREAM_TTL_SECONDS, DELETE_BATCH_SIZE]
            )
            deleted: int = cursor.rowcount
        total += deleted
        if deleted < DELETE_BATCH_SIZE:
            return total
