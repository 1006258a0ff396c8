"""SQL of thread edits. All writes share a transaction that starts with `LOCK_UNCHANGED_THREAD`."""

from __future__ import annotations

# Parameters: seconds until the deadline, primary key, `thread_id` of the thread.
READ_FENCE = """
SELECT t.runs_received, t.edits, clock_timestamp() + make_interval(secs => %b::float8),
       EXISTS (
           SELECT 1 FROM agent_server_agentrun r
           WHERE r.thread_id = t.id AND r.status IN ('pending', 'running')
       )
FROM agent_server_thread t WHERE t.id = %b AND t.thread_id = %b::uuid
"""

# The counters change with every received run and every committed edit.
LOCK_UNCHANGED_THREAD = """
SELECT id FROM agent_server_thread
WHERE id = %b AND runs_received = %b AND edits = %b AND clock_timestamp() < %b
FOR NO KEY UPDATE
"""

FIND_CHECKPOINTS = """
SELECT 1 FROM agent_server_checkpoint WHERE thread_id = %b AND checkpoint_id = ANY(%b::uuid[])
"""

INSERT_BLOBS = """
INSERT INTO agent_server_checkpointblob (thread_id, namespace, channel, version, kind, blob)
SELECT %b::uuid, p.*
FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[]) AS p
ON CONFLICT DO NOTHING
"""

INSERT_CHECKPOINTS = """
INSERT INTO agent_server_checkpoint (
    thread_id, namespace, checkpoint_id, parent_id, kind, blob, metadata, blob_versions
)
SELECT %b::uuid, p.namespace, p.id, p.parent_id, p.kind, p.blob, p.metadata::jsonb,
       p.versions::jsonb
FROM unnest(
    %b::text[], %b::uuid[], %b::uuid[], %b::text[], %b::bytea[], %b::text[], %b::text[]
) AS p(namespace, id, parent_id, kind, blob, metadata, versions)
ON CONFLICT DO NOTHING
"""

UPSERT_WRITES = """
INSERT INTO agent_server_checkpointwrite (
    thread_id, namespace, checkpoint_id, task_id, task_path, "index", channel, kind, blob
)
SELECT %b::uuid, p.*
FROM unnest(
    %b::text[], %b::uuid[], %b::text[], %b::text[], %b::int[], %b::text[], %b::text[], %b::bytea[]
) AS p
ON CONFLICT (thread_id, namespace, checkpoint_id, task_id, "index") DO UPDATE
SET channel = excluded.channel, kind = excluded.kind, blob = excluded.blob,
    task_path = excluded.task_path, run_id = NULL, replaced = NULL
WHERE excluded."index" < 0
"""

# A hidden thread that was created for this edit becomes visible.
UPDATE_THREAD = """
UPDATE agent_server_thread
SET edits = edits + 1, temporary = false, status = g.status, error = NULL,
    "values" = g."values"::json, state = NULLIF(g.state, 'null')::json,
    interrupts = coalesce(g.interrupts, '{}')::json,
    updated_at = clock_timestamp(), state_updated_at = clock_timestamp()
FROM (
    SELECT %b::text AS status, %b::text AS "values", %b::text AS state, %b::text AS interrupts
) AS g
WHERE id = %b
"""
