"""Copies, measures and prunes the checkpoints of a thread, which are opaque bytes."""
# ruff: noqa: S608  (the pieces are constants)

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from apps.agent_server import errors, prepared_sql
from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.schemas.base import CheckpointKey
from apps.agent_server.scope import Scope
from apps.agent_server.services.threads import IS_VISIBLE_THREAD, RETURNED_COLUMNS, ThreadRow
from apps.core.ids import uuid7
from apps.core.json import dumps, storable
from apps.core.verbatim_json import searchable
from apps.usage import storage
from apps.usage.models import StorageKind

BATCH_SIZE = 5_000
"""Checkpoints that one transaction deletes."""

# One statement has one snapshot, so a concurrent run changes the source only. The stored state
# contains the thread's id; a state with tasks is not copied, and reads call the graph instead. Its
# values stay as the graph wrote them.
_COPY = f"""
WITH source AS (
    SELECT *, CASE WHEN status <> 'busy' THEN {searchable("state")} END AS search_state
    FROM agent_server_thread WHERE {IS_VISIBLE_THREAD}
), copy AS (
    INSERT INTO agent_server_thread (
        id, workspace_id, deployment_id, thread_id, status, metadata, config, "values", interrupts,
        error, state, temporary, edits, ttl_minutes, ttl_strategy
    )
    SELECT %s, s.workspace_id, s.deployment_id, %s,
        CASE s.status WHEN 'busy' THEN 'idle' ELSE s.status END, s.metadata || %s::jsonb, s.config,
        s."values", s.interrupts, s.error,
        CASE WHEN s.search_state->'tasks' = '[]' THEN (
            '{{"values":' || s."values"::text || ',' || substr((
                (s.search_state - 'values') || (
                    SELECT jsonb_object_agg(
                        part.key, part.value || jsonb_build_object('thread_id', %s::text)
                    )
                    FROM jsonb_each(s.search_state) part
                    WHERE part.key IN ('checkpoint', 'parent_checkpoint', 'metadata')
                      AND jsonb_typeof(part.value) = 'object'
                )
            )::text, 2)
        )::json END,
        false, least(s.runs_received + s.edits, 1), s.ttl_minutes, s.ttl_strategy
    FROM source s
    RETURNING *
), blobs AS (
    INSERT INTO agent_server_checkpointblob (thread_id, namespace, channel, version, kind, blob)
    SELECT copy.id, b.namespace, b.channel, b.version, b.kind, b.blob
    FROM copy, source s JOIN agent_server_checkpointblob b ON b.thread_id = s.id
), checkpoints AS (
    INSERT INTO agent_server_checkpoint (
        thread_id, namespace, checkpoint_id, parent_id, run_id, kind, blob, metadata,
        blob_versions, created_at
    )
    SELECT copy.id, c.namespace, c.checkpoint_id, c.parent_id, c.run_id, c.kind, c.blob, c.metadata,
        c.blob_versions, c.created_at
    FROM copy, source s JOIN agent_server_checkpoint c ON c.thread_id = s.id
), writes AS (
    INSERT INTO agent_server_checkpointwrite (
        thread_id, namespace, checkpoint_id, task_id, task_path, "index", channel, kind, blob
    )
    SELECT copy.id, w.namespace, w.checkpoint_id, w.task_id, w.task_path, w."index", w.channel,
        w.kind, w.blob
    FROM copy, source s JOIN agent_server_checkpointwrite w ON w.thread_id = s.id
)
SELECT {RETURNED_COLUMNS} FROM copy
"""

_STORAGE = f"""
WITH this AS (
    SELECT id FROM agent_server_thread WHERE {IS_VISIBLE_THREAD}
), checkpoints AS (
    SELECT count(*) AS count,
        coalesce(sum(octet_length(c.blob) + octet_length(c.metadata::text)), 0) AS bytes
    FROM this JOIN agent_server_checkpoint c ON c.thread_id = this.id
), channels AS (
    SELECT b.channel, count(*) AS versions, sum(octet_length(b.blob)) AS bytes
    FROM this JOIN agent_server_checkpointblob b ON b.thread_id = this.id
    GROUP BY b.channel
), all_channels AS (
    SELECT coalesce(sum(versions), 0) AS count, coalesce(sum(bytes), 0) AS bytes,
        coalesce(jsonb_object_agg(
            channel, jsonb_build_object('versions', versions, 'bytes', bytes)
        ), '{{}}') AS by_channel
    FROM channels
), writes AS (
    SELECT count(*) AS count, coalesce(sum(octet_length(w.blob)), 0) AS bytes
    FROM this JOIN agent_server_checkpointwrite w ON w.thread_id = this.id
)
SELECT jsonb_build_object(
    'thread_id', %s::text,
    'total_bytes', c.bytes + v.bytes + w.bytes,
    'checkpoints', to_jsonb(c),
    'channel_values', to_jsonb(v),
    'pending_writes', to_jsonb(w)
)::text
FROM this, checkpoints c, all_channels v, writes w
"""

# Kept are the thread's newest checkpoint, the newest one of each subgraph with permanent state (no
# task in its namespace), and those of tasks that are unfinished in the newest checkpoint. A head
# that is rebuilt from the writes of its ancestors (it has counters of a delta channel) keeps all
# of them.
_DELETE_CHECKPOINTS = f"""
WITH heads AS (
    SELECT DISTINCT ON (namespace) namespace, checkpoint_id, metadata
    FROM agent_server_checkpoint WHERE thread_id = %(thread)s
    ORDER BY namespace, checkpoint_id DESC
), retained AS (
    SELECT h.* FROM heads h LEFT JOIN heads root ON root.namespace = ''
    WHERE h.namespace NOT LIKE '%%:%%'
       OR h.metadata->'parents'->>'' = root.checkpoint_id::text
), old AS (
    SELECT c.ctid FROM agent_server_checkpoint c
    WHERE c.thread_id = %(thread)s
      AND (%(before)s::timestamptz IS NULL OR c.created_at < %(before)s)
      AND NOT EXISTS (
          SELECT 1 FROM retained k
          WHERE k.namespace = c.namespace AND (k.checkpoint_id = c.checkpoint_id
                OR k.metadata ? 'counters_since_delta_snapshot')
      )
    LIMIT {BATCH_SIZE}
)
DELETE FROM agent_server_checkpoint WHERE ctid = ANY(ARRAY(SELECT ctid FROM old))
"""
_DELETE_ORPHANED_WRITES = f"""
DELETE FROM agent_server_checkpointwrite WHERE ctid = ANY(ARRAY(
    SELECT w.ctid FROM agent_server_checkpointwrite w
    WHERE w.thread_id = %(thread)s AND NOT EXISTS (
        SELECT 1 FROM agent_server_checkpoint c
        WHERE c.thread_id = w.thread_id AND c.namespace = w.namespace
          AND c.checkpoint_id = w.checkpoint_id
    )
    LIMIT {BATCH_SIZE}
))
"""
_DELETE_ORPHANED_BLOBS = f"""
WITH used AS MATERIALIZED (
    SELECT DISTINCT c.namespace, v.key AS channel, v.value AS version
    FROM agent_server_checkpoint c, jsonb_each_text(c.blob_versions) v
    WHERE c.thread_id = %(thread)s
)
DELETE FROM agent_server_checkpointblob WHERE ctid = ANY(ARRAY(
    SELECT b.ctid FROM agent_server_checkpointblob b
    WHERE b.thread_id = %(thread)s AND NOT EXISTS (
        SELECT 1 FROM used u
        WHERE u.namespace = b.namespace AND u.channel = b.channel AND u.version = b.version
    )
    LIMIT {BATCH_SIZE}
))
"""


_FIND_MISSING = f"""
SELECT key.position - 1
FROM unnest(%s::uuid[], %s::text[]) WITH ORDINALITY AS key(id, namespace, position)
WHERE NOT EXISTS (
    SELECT 1 FROM agent_server_checkpoint c
    WHERE c.thread_id = (SELECT id FROM agent_server_thread WHERE {IS_VISIBLE_THREAD})
      AND c.checkpoint_id = key.id AND c.namespace = coalesce(key.namespace, c.namespace)
)
ORDER BY key.position LIMIT 1
"""


def find_missing(
    scope: Scope, thread_id: UUID, keys: Sequence[CheckpointKey]
) -> errors.UnknownCheckpoint | None:
    """The error for the first checkpoint that the thread does not have; None if it has all."""
    if not keys:
        return None
    ids, namespaces = [key.checkpoint_id for key in keys], [key.namespace for key in keys]
    row = prepared_sql.fetch_row(
        _FIND_MISSING, [ids, namespaces, *scope.key, thread_id, scope.visible]
    )
    if row is None:
        return None
    key = keys[row[0]]
    return errors.UnknownCheckpoint(key.field, key.checkpoint_id, thread_id)


def require(scope: Scope, thread_id: UUID, keys: Sequence[CheckpointKey]) -> None:
    """Raise `UnknownCheckpoint` if one of the checkpoints does not exist on the thread."""
    if (error := find_missing(scope, thread_id, keys)) is not None:
        raise error


def copy(scope: Scope, thread_id: UUID, metadata: dict[str, Any]) -> ThreadRow:
    """Copy the thread with its history; `metadata` is merged into that of the source.

    Raises `StorageFull`.
    """
    storage.check(scope.route.workspace_id, StorageKind.THREADS)
    new_id = uuid7()
    text = storable(dumps(metadata)).decode()
    row = prepared_sql.fetch_row(
        _COPY, [*scope.key, thread_id, scope.visible, uuid7(), new_id, text, str(new_id)]
    )
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    return ThreadRow(*row)


def measure_storage(scope: Scope, thread_id: UUID) -> str:
    """The storage of a thread by kind in bytes, as JSON."""
    row = prepared_sql.fetch_row(_STORAGE, [*scope.key, thread_id, scope.visible, str(thread_id)])
    if row is None:
        raise errors.ThreadNotFound(thread_id)
    text: str = row[0]
    return text


def keep_latest(thread: UUID, *, before: datetime | None = None) -> bool:
    """Delete the checkpoints (older than `before`) that the latest state does not need.

    Returns False for a busy thread, which is left unchanged. Works in batches; safe to repeat.
    """
    params = {"thread": thread, "before": before}
    for statement in (_DELETE_CHECKPOINTS, _DELETE_ORPHANED_WRITES, _DELETE_ORPHANED_BLOBS):
        deleted = BATCH_SIZE
        while deleted == BATCH_SIZE:
            with transaction.atomic(), connection.cursor() as cursor:
                if not _lock_idle_thread(thread):
                    return False
                cursor.execute(statement, params)
                deleted = cursor.rowcount
                # An edit that started from a deleted checkpoint must restart.
                rows = Thread.objects.across_workspaces(reason="the locked thread")
                rows.filter(pk=thread).update(edits=F("edits") + 1, pruned_at=timezone.now())
    return True


def _lock_idle_thread(thread: UUID) -> bool:
    """Whether the thread has no open run; the row lock prevents new ones."""
    rows = Thread.objects.across_workspaces(reason="the caller chose this thread")
    if not rows.filter(pk=thread, temporary=False).select_for_update(no_key=True).exists():
        return False
    runs = AgentRun.objects.across_workspaces(reason="the runs of that thread")
    return not runs.filter(thread=thread).unfinished().exists()
