"""SQL that ends the tasks of ended runs."""

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
