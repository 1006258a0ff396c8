"""SQL that ends the tasks of ended runs, and schedules the notifications of their changes."""

from __future__ import annotations

TASK_KEY = "a2a_task"
"""The key of a task's run in the run's metadata."""
TASK_MARKER = f'"{TASK_KEY}"'
"""Substring of the `metadata` JSON of every run of a task; may also occur in other runs."""

# Execute it in the transaction that ends the runs, after the rows of runs and threads are written.
END_TASKS = """
UPDATE agent_server_a2atask t
SET state = CASE
        WHEN r.status = 'interrupted' THEN 'canceled'
        WHEN r.status <> 'success' THEN 'failed'
        WHEN COALESCE(h.interrupts::text, '{}') NOT IN ('{}', 'null') THEN 'input-required'
        ELSE 'completed' END,
    output = h."values", error = r.error, updated_at = clock_timestamp(),
    interrupts = CASE WHEN r.status = 'success' THEN h.interrupts END
FROM agent_server_agentrun r JOIN agent_server_thread h ON h.id = r.thread_id
WHERE r.id = ANY(%s::uuid[]) AND r.status NOT IN ('pending', 'running')
  AND t.run_id = r.id AND t.state = ''
"""

PUSH_KIND = "a2a"
"""The kind of the deliveries that notify clients of A2A."""
STATUS, ARTIFACT = "status", "artifact"
"""The events of these deliveries."""

# The id follows from the change, so a repeated transaction adds nothing. A client of 0.3 gets the
# whole task, with its artifacts, in the event of the status.
_ADD_PUSHES = """
INSERT INTO webhooks_delivery (
    id, workspace_id, kind, endpoint_id, subject_id, event, payload, message_id, is_replay,
    status, attempts, due_at, last_error, log, created_at
)
SELECT change.id, t.workspace_id, 'a2a', c.id, t.id, change.event,
    json_build_object(
        'context_id', t.context_id, 'thread_id', h.thread_id, 'run_id', t.run_id,
        'state', {state}, 'output', t.output, 'interrupts', t.interrupts, 'error', t.error,
        'updated_at', to_char(t.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    ),
    change.id, false, 'due', 0, clock_timestamp(), '', '[]', clock_timestamp()
FROM agent_server_a2atask t
JOIN agent_server_a2apushconfig c ON c.task_id = t.id
JOIN agent_server_thread h ON h.id = t.thread_id
CROSS JOIN LATERAL (
    SELECT md5(concat_ws(' ', c.id, t.run_id, {state}, event))::uuid AS id, event
    FROM (VALUES ('artifact'), ('status')) events(event)
    WHERE event = 'status' OR ({state} = 'completed' AND NOT c.is_legacy AND t.output IS NOT NULL)
) change
WHERE t.run_id = ANY(%s::uuid[]) AND {condition}
ON CONFLICT (id) DO NOTHING
"""
# Execute it after `END_TASKS`, in the same transaction.
ADD_PUSHES_OF_ENDED = _ADD_PUSHES.format(state="t.state", condition="t.state <> ''")
ADD_PUSHES_OF_SUBMITTED = _ADD_PUSHES.format(state="'submitted'", condition="t.state = ''")
ADD_PUSHES_OF_STARTED = _ADD_PUSHES.format(state="'working'", condition="t.state = ''")
