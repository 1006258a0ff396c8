"""The SQL of the engine.

All transactions lock in the same order: threads by id, then runs by id. Each write for a run joins
the run's row by the fencing token `(id, attempt)` and status `running`, so a stale token writes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.agent_runtime.db.write_batch import StreamChunk
from apps.agent_server.run_state_sql import BACK_OFF, UNDO_CLAIM, return_lost

LOCK_THREADS = """
SELECT id FROM agent_server_thread WHERE id = ANY(%b::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

LOCK_RUNS = """
SELECT r.id, r.attempt
FROM agent_server_agentrun r
JOIN unnest(%b::uuid[], %b::int[]) AS token(id, attempt)
  ON r.id = token.id AND r.attempt = token.attempt
WHERE r.status = 'running'
ORDER BY r.id
FOR NO KEY UPDATE OF r
"""

UPSERT_CHECKPOINTS = """
INSERT INTO agent_server_checkpoint (
    thread_id, namespace, checkpoint_id, parent_id, run_id, kind, blob, metadata, blob_versions
)
SELECT r.thread_id, p.namespace, p.id, p.parent_id, r.id, p.kind, p.blob,
       p.metadata::jsonb, p.versions::jsonb
FROM unnest(
    %b::uuid[], %b::int[], %b::text[], %b::uuid[], %b::uuid[], %b::text[], %b::bytea[],
    %b::text[], %b::text[]
) AS p(run_id, attempt, namespace, id, parent_id, kind, blob, metadata, versions)
JOIN agent_server_agentrun r
  ON r.id = p.run_id AND r.attempt = p.attempt AND r.status = 'running'
ON CONFLICT (thread_id, namespace, checkpoint_id) DO UPDATE
SET blob = excluded.blob, metadata = excluded.metadata, blob_versions = excluded.blob_versions,
    kind = excluded.kind, parent_id = excluded.parent_id
"""

INSERT_BLOBS = """
INSERT INTO agent_server_checkpointblob (thread_id, namespace, channel, version, kind, blob)
SELECT r.thread_id, p.namespace, p.channel, p.version, p.kind, p.blob
FROM unnest(
    %b::uuid[], %b::int[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[]
) AS p(run_id, attempt, namespace, channel, version, kind, blob)
JOIN agent_server_agentrun r
  ON r.id = p.run_id AND r.attempt = p.attempt AND r.status = 'running'
ON CONFLICT DO NOTHING
"""

# Special writes (index below zero: errors, interrupts, resumes) are replaced; other writes stay.
# The replaced write of an earlier run is kept for a rollback of this run.
UPSERT_WRITES = """
INSERT INTO agent_server_checkpointwrite AS w (
    thread_id, namespace, checkpoint_id, task_id, task_path, "index", channel, kind, blob, run_id
)
SELECT r.thread_id, p.namespace, p.id, p.task_id, p.task_path, p.index, p.channel, p.kind, p.blob,
       r.id
FROM unnest(
    %b::uuid[], %b::int[], %b::text[], %b::uuid[], %b::text[], %b::text[], %b::int[], %b::text[],
    %b::text[], %b::bytea[]
) AS p(run_id, attempt, namespace, id, task_id, task_path, index, channel, kind, blob)
JOIN agent_server_agentrun r
  ON r.id = p.run_id AND r.attempt = p.attempt AND r.status = 'running'
ON CONFLICT (thread_id, namespace, checkpoint_id, task_id, "index") DO UPDATE
SET channel = excluded.channel, kind = excluded.kind, blob = excluded.blob,
    task_path = excluded.task_path, run_id = excluded.run_id,
    replaced = CASE WHEN w.run_id IS NOT DISTINCT FROM excluded.run_id THEN w.replaced
        ELSE jsonb_build_object('channel', w.channel, 'kind', w.kind, 'run_id', w.run_id,
                                'blob', encode(w.blob, 'base64')) END
WHERE excluded."index" < 0
"""

# A crash is an attempt that ended with its process. Runs that a stopping worker returns, or that
# shared the crashed host with other runs, are not charged.
RELEASE = f"""
UPDATE agent_server_agentrun r
SET status = 'pending', lease_owner = '', lease_expires_at = NULL, updated_at = clock_timestamp(),
    crash_count = r.crash_count + released.crashed::int,
    isolation_group_size = released.isolation_group_size,
    available_at = CASE WHEN released.crashed THEN greatest(
        {BACK_OFF}, clock_timestamp() + make_interval(secs => released.delay))
        ELSE clock_timestamp() END
FROM unnest(%b::uuid[], %b::int[], %b::bool[], %b::int[], %b::float8[])
  AS released(id, attempt, crashed, isolation_group_size, delay)
WHERE r.id = released.id AND r.attempt = released.attempt AND r.status = 'running'
RETURNING r.id
"""  # noqa: S608  (built from constants)

# The oldest run of each thread, if it is due and its deployment is not stopped (`UNUSED`). A run
# that waits for its retry blocks later runs. The position of a scheduled run is its planned start.
_DUE_RUNS = """
WITH next AS (
    SELECT DISTINCT ON (r.thread_id)
           r.id, r.thread_id, r.workspace_id, r.deployment_id, r.available_at
    FROM agent_server_agentrun r
    WHERE r.thread_id = ANY(%b::uuid[]) AND r.status = 'pending'
      AND r.created_at <= clock_timestamp()
      AND NOT EXISTS (
          SELECT 1 FROM agent_server_agentrun o
          WHERE o.thread_id = r.thread_id AND o.status = 'running'
      )
    ORDER BY r.thread_id, r.created_at, r.sequence
), due AS (
    SELECT n.id, n.thread_id, w.organization_id, n.deployment_id, n.available_at,
           row_number() OVER (PARTITION BY n.deployment_id ORDER BY n.available_at) AS rank
    FROM next n
    JOIN organizations_workspace w ON w.id = n.workspace_id
    JOIN deployments_deployment d ON d.id = n.deployment_id
    WHERE n.available_at <= clock_timestamp() AND d.status <> 'UNUSED'
)
"""

# Starts as many runs of each deployment as it has free slots, and of these as many of each
# organization: one run of each of its deployments after the other.
CLAIM = (
    _DUE_RUNS.rstrip()  # noqa: S608  (built from constants)
    + """, within_deployment AS (
    SELECT due.id, due.organization_id, organization.slots,
           row_number() OVER (
               PARTITION BY due.organization_id ORDER BY due.rank, due.available_at
           ) AS rank
    FROM due
    LEFT JOIN unnest(%b::uuid[], %b::int[], %b::int[])
      AS organization(id, slots, new_deployment_slots) ON organization.id = due.organization_id
    LEFT JOIN unnest(%b::uuid[], %b::int[]) AS deployment(id, slots)
      ON deployment.id = due.deployment_id
    WHERE due.rank <= COALESCE(deployment.slots, organization.new_deployment_slots, %b::int)
), allowed AS (
    SELECT id, organization_id FROM within_deployment WHERE rank <= COALESCE(slots, %b::int)
)
UPDATE agent_server_agentrun r
SET status = 'running', attempt = r.attempt + 1, lease_owner = %b,
    lease_expires_at = clock_timestamp() + make_interval(secs => %b::float8),
    started_at = COALESCE(r.started_at, clock_timestamp()), updated_at = clock_timestamp()
FROM allowed, agent_server_thread t, deployments_deployment d
WHERE r.id = allowed.id AND r.status = 'pending'
  AND t.id = r.thread_id AND d.id = r.deployment_id
RETURNING r.id, r.attempt, r.thread_id, t.thread_id, allowed.organization_id,
          r.workspace_id, r.deployment_id,
          COALESCE(r.revision_id, t.revision_id, d.active_revision_id),
          r.assistant_id, r.graph_id, r.metadata::text, r.kwargs::text,
          r.resumable, t.temporary,
          r.cancel_action, r.crash_count, r.isolation_group_size
"""
)

# After `CLAIM`: the threads whose organization or deployment had no free slot.
UNCLAIMED = (
    _DUE_RUNS + "SELECT thread_id, organization_id, deployment_id FROM due ORDER BY rank"  # noqa: S608
)

# A checkpoint with its channel values and pending writes
# (graph_host.checkpoint_cache.StoredCheckpoint).
_CHECKPOINT = """
SELECT c.thread_id, c.namespace, c.checkpoint_id::text, c.parent_id::text, c.kind, c.blob,
       c.metadata::text, b.channels, b.versions, b.kinds, b.blobs,
       w.tasks, w.indexes, w.channels, w.kinds, w.blobs, w.paths
FROM {source} c
LEFT JOIN LATERAL (
    SELECT array_agg(b.channel) AS channels, array_agg(b.version) AS versions,
           array_agg(b.kind::text) AS kinds, array_agg(b.blob) AS blobs
    FROM jsonb_each_text(c.blob_versions) AS v(channel, version)
    JOIN agent_server_checkpointblob b
      ON b.thread_id = c.thread_id AND b.namespace = c.namespace
     AND b.channel = v.channel AND b.version = v.version
) b ON true
LEFT JOIN LATERAL (
    SELECT array_agg(w.task_id) AS tasks, array_agg(w."index") AS indexes,
           array_agg(w.channel) AS channels, array_agg(w.kind::text) AS kinds,
           array_agg(w.blob) AS blobs, array_agg(w.task_path) AS paths
    FROM (
        SELECT * FROM agent_server_checkpointwrite w
        WHERE w.thread_id = c.thread_id AND w.namespace = c.namespace
          AND w.checkpoint_id = c.checkpoint_id
        ORDER BY w.task_path COLLATE "C", w.task_id COLLATE "C", w."index"
    ) w
) w ON true
"""

HEADS = _CHECKPOINT.format(
    source="""unnest(%b::uuid[]) AS wanted(id) CROSS JOIN LATERAL (
    SELECT * FROM agent_server_checkpoint
    WHERE thread_id = wanted.id AND namespace = '' ORDER BY checkpoint_id DESC LIMIT 1
)"""
)

CHECKPOINT_BY_ID = (
    _CHECKPOINT.format(source="agent_server_checkpoint")
    + "WHERE c.thread_id = %b AND c.namespace = %b AND c.checkpoint_id = %b"
)

NEWEST_CHECKPOINT = (
    _CHECKPOINT.format(source="agent_server_checkpoint")
    + "WHERE c.thread_id = %b AND c.namespace = %b ORDER BY c.checkpoint_id DESC LIMIT 1"
)

LIST_CHECKPOINTS = (
    _CHECKPOINT.format(  # noqa: S608  (built from constants)
        source="""(
    SELECT * FROM agent_server_checkpoint
    WHERE thread_id = %b AND (%b::text IS NULL OR namespace = %b)
      AND (%b::uuid IS NULL OR checkpoint_id = %b) AND (%b::uuid IS NULL OR checkpoint_id < %b)
      AND (%b::text IS NULL OR metadata @> %b::text::jsonb)
    ORDER BY checkpoint_id DESC LIMIT %b
)"""
    )
    + "ORDER BY c.checkpoint_id DESC"
)

RENEW = """
WITH owned AS (
    SELECT id FROM agent_server_agentrun
    WHERE id = ANY(%b::uuid[]) AND lease_owner = %b AND status = 'running'
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE agent_server_agentrun r
SET lease_expires_at = clock_timestamp() + make_interval(secs => %b::float8)
FROM owned WHERE r.id = owned.id
RETURNING r.id, r.attempt, r.cancel_action
"""

# Claims whose answer was lost with the connection, so that their worker does not know them.
UNDO_FORGOTTEN_CLAIMS = (
    UNDO_CLAIM
    + """
WHERE r.lease_owner = %b AND r.status = 'running' AND r.id <> ALL(%b::uuid[])
  AND r.updated_at < clock_timestamp() - make_interval(secs => %b::float8)
RETURNING r.thread_id
"""
)

# Claims of a repeated batch whose answer was lost; undone without waiting for a lease.
UNDO_UNANSWERED_CLAIMS = (
    UNDO_CLAIM
    + """
WHERE r.thread_id = ANY(%b::uuid[]) AND r.lease_owner = %b AND r.status = 'running'
  AND r.id <> ALL(%b::uuid[])
"""
)

# Runs of dead processes of this node, whose lock this process holds.
INHERITED = return_lost(
    "r.status = 'running' AND starts_with(r.lease_owner, %b) AND r.lease_owner <> %b"
)

# Seconds until the next run is due, and the threads of runs that became due recently. Runs that
# were due at creation are excluded: they are in the queue.
NEXT_DUE = """
SELECT EXTRACT(EPOCH FROM min(available_at) - clock_timestamp())::float8
FROM agent_server_agentrun WHERE status = 'pending' AND available_at > clock_timestamp()
"""
JUST_DUE = """
SELECT thread_id FROM agent_server_agentrun
WHERE status = 'pending' AND available_at <= clock_timestamp() AND available_at > updated_at
  AND available_at > clock_timestamp() - make_interval(secs => %b::float8)
ORDER BY available_at LIMIT 1000
"""

# The given runs that have not ended; a rolled back run has ended.
STILL_OPEN = """
SELECT id FROM agent_server_agentrun
WHERE id = ANY(%b::uuid[]) AND status IN ('pending', 'running')
"""

# The active revisions of the most recently used or deployed deployments: of each organization the
# first one, then the second ones. Parameters: maximum age in days, maximum number.
SERVING_REVISIONS = """
WITH used AS (
    SELECT d.active_revision_id, d.id, d.workspace_id, w.organization_id,
           greatest(newest.created_at, d.updated_at) AS used_at
    FROM deployments_deployment d
    JOIN organizations_workspace w ON w.id = d.workspace_id
    LEFT JOIN LATERAL (
        SELECT r.created_at FROM agent_server_agentrun r
        WHERE r.workspace_id = d.workspace_id AND r.deployment_id = d.id
        ORDER BY r.created_at DESC LIMIT 1
    ) newest ON true
    WHERE d.active_revision_id IS NOT NULL AND d.deleted_at IS NULL AND d.status <> 'UNUSED'
)
SELECT active_revision_id, id, workspace_id, organization_id
FROM used
WHERE used_at > now() - make_interval(days => %b::int)
ORDER BY row_number() OVER (PARTITION BY organization_id ORDER BY used_at DESC), used_at DESC
LIMIT %b::int
"""

# The generation that hosts of these revisions must have; no row if they must have none.
HOST_GENERATIONS = """
SELECT r.id, d.host_generation
FROM deployments_revision r JOIN deployments_deployment d ON d.id = r.deployment_id
WHERE r.id = ANY(%b::uuid[]) AND d.deleted_at IS NULL AND d.status <> 'UNUSED'
"""

CANCEL_ACTION = """
SELECT cancel_action FROM agent_server_agentrun
WHERE id = %b AND attempt = %b AND status = 'running'
"""

ADD_LOG_LINES = """
INSERT INTO deployments_logline (
    workspace_id, deployment_id, revision_id, kind, level, message, created_at
)
SELECT %b, %b, %b, 'deploy', level, message, clock_timestamp()
FROM unnest(%b::text[], %b::text[]) AS line(level, message)
"""


# The events of resumable runs.
INSERT_STREAM_CHUNKS = """
INSERT INTO agent_server_streamedevents (run_id, position, batches)
SELECT r.id, p.position, p.batches
FROM unnest(%b::uuid[], %b::int[], %b::bigint[], %b::bytea[])
    AS p(run_id, attempt, position, batches)
JOIN agent_server_agentrun r
  ON r.id = p.run_id AND r.attempt = p.attempt AND r.status = 'running'
ON CONFLICT DO NOTHING
"""

# For runs whose stored events exceed the limit.
DELETE_OLDEST_STREAM_CHUNKS = """
DELETE FROM agent_server_streamedevents s
USING unnest(%b::uuid[], %b::bigint[]) AS p(run_id, position)
WHERE s.run_id = p.run_id AND s.position <= p.position
"""


def store_stream_chunks(chunks: Sequence[StreamChunk]) -> list[tuple[str, list[list[Any]]]]:
    """Return the statements, with parameters, that store the chunks."""
    rows = [(*entry.token, entry.position, entry.batches) for entry in chunks]
    statements = [(INSERT_STREAM_CHUNKS, [list(column) for column in zip(*rows, strict=True)])]
    deleted = [(e.token.run_id, e.delete_up_to) for e in chunks if e.delete_up_to is not None]
    if deleted:
        statements.append(
            (DELETE_OLDEST_STREAM_CHUNKS, [list(column) for column in zip(*deleted, strict=True)])
        )
    return statements
