"""Operations on whole threads that LangGraph's conformance suite requires of a checkpointer.

Agents may not call them; the platform has its own services (services.delete_threads,
services.checkpoints). Each function returns statements with parameters, for one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.agent_server import run_state_sql
from apps.agent_server.run_state_sql import SqlBatch

DELETE_THREADS = [
    "DELETE FROM agent_server_checkpointwrite WHERE thread_id = ANY(%s::uuid[])",
    "DELETE FROM agent_server_checkpointblob WHERE thread_id = ANY(%s::uuid[])",
    "DELETE FROM agent_server_checkpoint WHERE thread_id = ANY(%s::uuid[])",
]

# Parameters: target, source.
COPY_THREAD = [
    """
    INSERT INTO agent_server_checkpointblob (thread_id, namespace, channel, version, kind, blob)
    SELECT %s::uuid, namespace, channel, version, kind, blob
    FROM agent_server_checkpointblob WHERE thread_id = %s::uuid
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO agent_server_checkpoint (
        thread_id, namespace, checkpoint_id, parent_id, run_id, kind, blob, metadata,
        blob_versions, created_at
    )
    SELECT %s::uuid, namespace, checkpoint_id, parent_id, run_id, kind, blob, metadata,
           blob_versions, created_at
    FROM agent_server_checkpoint WHERE thread_id = %s::uuid
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO agent_server_checkpointwrite (
        thread_id, namespace, checkpoint_id, task_id, task_path, "index", channel, kind, blob
    )
    SELECT %s::uuid, namespace, checkpoint_id, task_id, task_path, "index", channel, kind, blob
    FROM agent_server_checkpointwrite WHERE thread_id = %s::uuid
    ON CONFLICT DO NOTHING
    """,
]

# Parameters: threads, runs.
DELETE_FOR_RUNS = """
DELETE FROM agent_server_checkpoint
WHERE thread_id = ANY(%s::uuid[])
  AND (run_id = ANY(%s::uuid[]) OR metadata ->> 'run_id' = ANY(%s::text[]))
"""

# Keep only the newest checkpoint of each namespace. A head with delta channels is rebuilt from the
# writes of its ancestors, so they are kept as well.
KEEP_LATEST = """
DELETE FROM agent_server_checkpoint c
USING (
    SELECT DISTINCT ON (thread_id, namespace) thread_id, namespace, checkpoint_id, metadata
    FROM agent_server_checkpoint WHERE thread_id = ANY(%s::uuid[])
    ORDER BY thread_id, namespace, checkpoint_id DESC
) head
WHERE c.thread_id = head.thread_id AND c.namespace = head.namespace
  AND c.checkpoint_id <> head.checkpoint_id
  AND NOT head.metadata ? 'counters_since_delta_snapshot'
"""


def delete_threads(threads: Sequence[UUID]) -> SqlBatch:
    """Delete all checkpoints of these threads."""
    return [(text, [list(threads)]) for text in DELETE_THREADS]


def copy_thread(source: UUID, target: UUID) -> SqlBatch:
    """Copy all checkpoints of `source` to `target`, with their ids."""
    return [(text, [target, source]) for text in COPY_THREAD]


def delete_for_runs(threads: Sequence[UUID], run_ids: Sequence[UUID]) -> SqlBatch:
    """Delete the checkpoints that these runs saved on these threads."""
    runs = [list(run_ids), [str(run_id) for run_id in run_ids]]
    return [(DELETE_FOR_RUNS, [list(threads), *runs]), *_collect_garbage(threads)]


def keep_latest(threads: Sequence[UUID]) -> SqlBatch:
    """Delete all but the newest checkpoint of each namespace."""
    return [(KEEP_LATEST, [list(threads)]), *_collect_garbage(threads)]


def _collect_garbage(threads: Sequence[UUID]) -> SqlBatch:
    return [(text, [list(threads)]) for text in run_state_sql.COLLECT_GARBAGE]
