"""Events of resumable runs in PostgreSQL: reading them back, and sweeping them away.

The engine writes them (engine/keeping.py), a tenth of a second behind Redis. They outlive their run
by RESUMABLE_STREAM_TTL_SECONDS.
"""

from __future__ import annotations

from uuid import UUID

import msgpack
from django.conf import settings
from django.db import connection

from apps.agent_server import prepared_sql
from apps.agent_server.streaming.streams import Batch, EventId, read

ROWS_PER_READ = 20
"""Stretches read at a time; each holds about a tenth of a second, at most 256 KiB."""
DELETE_BATCH_SIZE = 2_000

_AFTER = """
SELECT batches FROM agent_server_streamedevents
WHERE run_id = %s AND position > %s ORDER BY position LIMIT %s
"""
_SWEEP = """
DELETE FROM agent_server_streamedevents WHERE (run_id, position) IN (
    SELECT s.run_id, s.position
    FROM agent_server_streamedevents s LEFT JOIN agent_server_agentrun r ON r.id = s.run_id
    WHERE r.id IS NULL
       OR (r.status NOT IN ('pending', 'running')
           AND r.ended_at < clock_timestamp() - make_interval(secs => %s))
    LIMIT %s
)
"""


def after(run_id: UUID, seen: EventId) -> list[Batch]:
    """The next batches after that event; none when nothing more is kept.

    For a run that the caller was let in to: rows carry no workspace of their own.
    """
    rows = prepared_sql.fetch_rows(_AFTER, [run_id, seen.position, ROWS_PER_READ])
    batches = [read(packed) for (stretch,) in rows for packed in msgpack.unpackb(bytes(stretch))]
    return [batch for batch in batches if batch.last > seen]


def delete_expired() -> int:
    """Forget what is no longer promised, a part at a time; return how many stretches went."""
    swept = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_SWEEP, [settings.RESUMABLE_STREAM_TTL_SECONDS, DELETE_BATCH_SIZE])
            now: int = cursor.rowcount
        swept += now
        if now < DELETE_BATCH_SIZE:
            return swept
