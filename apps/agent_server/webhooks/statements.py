"""SQL that schedules, claims and records webhook deliveries."""

from __future__ import annotations

from apps.core.verbatim_json import searchable

WEBHOOK_MARKER = '"webhook":"'
"""Substring of the `kwargs` JSON of every run with a webhook; may also occur in other runs."""

# Execute it in the transaction that ends the runs, after the rows of runs and threads are written.
ADD_DUE = f"""
INSERT INTO agent_server_webhookdelivery (
    id, workspace_id, deployment_id, run_id, thread_id, url, status, attempts, due_at, payload,
    run_created_at, run_started_at, run_ended_at, last_error, log, created_at
)
SELECT uuidv7(), r.workspace_id, r.deployment_id, r.id, t.thread_id,
    {searchable("r.kwargs")} ->> 'webhook',
    'due', 0, clock_timestamp(),
    json_build_object(
        'assistant_id', r.assistant_id, 'status', r.status, 'metadata', r.metadata,
        'kwargs', r.kwargs, 'multitask_strategy', r.multitask_strategy, 'values', t."values",
        'error', r.error
    ),
    r.created_at, r.started_at, COALESCE(r.ended_at, clock_timestamp()), '', '[]',
    clock_timestamp()
FROM agent_server_agentrun r JOIN agent_server_thread t ON t.id = r.thread_id
WHERE r.id = ANY(%s::uuid[]) AND r.status NOT IN ('pending', 'running')
  AND {searchable("r.kwargs")} ->> 'webhook' IS NOT NULL
ON CONFLICT (run_id) DO NOTHING
"""  # noqa: S608  (built from constants)

# A claim is a lease: the row is due again after it unless the sender records a result.
CLAIM = """
WITH due AS (
    SELECT id FROM agent_server_webhookdelivery
    WHERE status IN ('due', 'sending') AND due_at <= clock_timestamp()
      AND deployment_id <> ALL(%s::uuid[])
      AND workspace_id NOT IN (
          SELECT id FROM organizations_workspace WHERE organization_id = ANY(%s::uuid[])
      )
    ORDER BY due_at LIMIT %s
    FOR UPDATE SKIP LOCKED
)
UPDATE agent_server_webhookdelivery w
SET status = 'sending', attempts = w.attempts + 1,
    due_at = clock_timestamp() + make_interval(secs => %s::float8)
FROM due WHERE w.id = due.id
RETURNING w.id, w.attempts, w.workspace_id, w.deployment_id, w.run_id, w.thread_id, w.url,
    w.payload::text, w.run_created_at, w.run_started_at, w.run_ended_at,
    (SELECT organization_id FROM organizations_workspace WHERE id = w.workspace_id)
"""

_RECORD_ATTEMPT = """log = log || %s::text::jsonb,
    response_status = COALESCE(%s::int, response_status), last_error = %s
WHERE id = %s AND attempts = %s AND status = 'sending'
"""

DELIVERED = (
    """
UPDATE agent_server_webhookdelivery
SET status = 'delivered', delivered_at = clock_timestamp(), payload = NULL, """
    + _RECORD_ATTEMPT
)

RETRY = (
    """
UPDATE agent_server_webhookdelivery
SET status = 'due', due_at = clock_timestamp() + make_interval(secs => %s::float8), """
    + _RECORD_ATTEMPT
)

GIVEN_UP = (
    """
UPDATE agent_server_webhookdelivery
SET status = 'given_up', payload = NULL, """
    + _RECORD_ATTEMPT
)

DELETE_OLD = """
DELETE FROM agent_server_webhookdelivery
WHERE id IN (
    SELECT id FROM agent_server_webhookdelivery
    WHERE created_at < clock_timestamp() - make_interval(days => %s)
      AND status IN ('delivered', 'given_up')
    ORDER BY created_at LIMIT %s
)
"""
