"""SQL that creates and reads runs.

One statement locks the thread, updates it and inserts the run. The row lock orders the runs of a
thread: under it a run gets sequence, id and creation time, so all three have the same order. The
request's configuration overrides that of the assistant at that time. `kwargs` is JSON text without
the last brace: input and command are stored as they were sent.
"""
# ruff: noqa: S608  (the pieces are constants of this module)

from __future__ import annotations

_ASSISTANT = """
assistant AS (
    SELECT assistant_id, graph_id, config, context, metadata
    FROM agent_server_assistant
    WHERE workspace_id = %(workspace)s AND deployment_id = %(deployment)s
      AND assistant_id = %(assistant)s AND graph_id = ANY(%(graphs)s)
), merged AS (
    SELECT assistant_id, graph_id, metadata,
        '{"configurable": {}}'::jsonb || config AS own_config,
        config || %(config)s::jsonb || jsonb_build_object('configurable',
            coalesce(config->'configurable', '{}') || %(configurable)s::jsonb) AS config,
        CASE WHEN context = '{}' AND %(context)s::jsonb IS NULL THEN 'null'
            ELSE context || coalesce(%(context)s::jsonb, '{}') END AS context,
        jsonb_build_object('graph_id', graph_id, 'assistant_id', assistant_id) AS origin
    FROM assistant
)"""

_INSERT_RUN = """
INSERT INTO agent_server_agentrun (
    id, workspace_id, deployment_id, thread_id, assistant_id, graph_id, revision_id, sequence,
    status, metadata, kwargs, resumable, multitask_strategy, on_completion, cancel_action, attempt,
    lease_owner, available_at, created_at, updated_at
)
SELECT uuidv7(), %(workspace)s, %(deployment)s, thread.id, a.assistant_id, a.graph_id,
    thread.revision_id, thread.runs_received, 'pending',
    a.metadata || {thread_metadata} || %(metadata)s::jsonb || {origin},
    (%(kwargs)s || ',"config":' || a.config::text || ',"context":' || a.context::text
        || '}}')::json,
    %(resumable)s,
    %(strategy)s, %(on_completion)s, '', 0, '',
    clock.now + %(delay)s::float8 * interval '1 second',
    clock.now + %(delay)s::float8 * interval '1 second', clock.now
FROM thread, merged a, LATERAL (SELECT clock_timestamp() AS now, thread.id) clock
RETURNING id, thread_id, assistant_id, status, metadata::text, kwargs::text, multitask_strategy,
    created_at, updated_at
"""

CREATE_ON_THREAD = (
    "WITH"
    + _ASSISTANT
    + """, thread AS (
    UPDATE agent_server_thread t
    SET runs_received = t.runs_received + 1, status = 'busy', updated_at = clock_timestamp(),
        metadata = t.metadata || a.origin, config = a.own_config,
        revision_id = CASE WHEN t.status = 'busy' THEN coalesce(t.revision_id, %(revision)s)
            ELSE %(revision)s END
    FROM merged a
    WHERE t.workspace_id = %(workspace)s AND t.deployment_id = %(deployment)s
      AND t.thread_id = %(thread)s AND NOT t.temporary
      AND t.metadata @> %(visible)s::jsonb
      AND (t.status <> 'busy' OR %(strategy)s = 'enqueue' OR %(supersedes)s)
    RETURNING t.id, t.metadata, t.runs_received, t.revision_id
)"""
    + _INSERT_RUN.format(thread_metadata="thread.metadata", origin="a.origin")
)
"""Returns and changes nothing if there is no such thread or assistant, or if the thread is busy and
the strategy does not allow another run."""

CREATE_ON_NEW_THREAD = (
    "WITH"
    + _ASSISTANT
    + """, thread AS (
    INSERT INTO agent_server_thread (
        id, workspace_id, deployment_id, thread_id, status, metadata, config, temporary,
        runs_received, revision_id, ttl_minutes, ttl_strategy
    )
    SELECT %(thread)s, %(workspace)s, %(deployment)s, %(thread)s, 'busy',
        %(owner_metadata)s::jsonb || a.origin, a.own_config, %(temporary)s, 1, %(revision)s,
        %(ttl_minutes)s::float8, %(ttl_strategy)s
    FROM merged a
    RETURNING id, metadata, runs_received, revision_id
)"""
    # The metadata of a stateless run does not contain the graph.
    + _INSERT_RUN.format(
        thread_metadata="'{}'", origin="jsonb_build_object('assistant_id', a.assistant_id)"
    )
)

_FROM_VISIBLE_RUN = """
FROM agent_server_agentrun r JOIN agent_server_thread t ON t.id = r.thread_id
WHERE r.id = %s AND r.workspace_id = %s AND r.deployment_id = %s
  AND t.metadata @> %s::jsonb
"""

SELECT_RUN = (
    """
SELECT r.id, t.thread_id, r.assistant_id, r.status, r.metadata::text, r.kwargs::text,
    r.multitask_strategy, r.created_at, r.updated_at
"""
    + _FROM_VISIBLE_RUN
    + "AND t.thread_id = %s"
)

SELECT_THREAD_OF_RUN = "SELECT r.thread_id" + _FROM_VISIBLE_RUN + "AND t.thread_id = %s"

SELECT_JOINABLE = (
    "SELECT r.status, r.resumable"
    + _FROM_VISIBLE_RUN
    + "AND (%s::uuid IS NULL OR t.thread_id = %s)"
)

SELECT_OUTCOME = (
    'SELECT r.status, r.error::text, t."values"::text, t.interrupts::text' + _FROM_VISIBLE_RUN
)
