"""SQL that ends runs, rolls them back or returns them to the queue, and updates their threads.

The engine's group commit and the services share these statements. All are fenced by run id, attempt
and expected status. The caller must lock the threads first, then the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from apps.agent_server.a2a import statements as a2a
from apps.agent_server.webhooks import statements as webhooks
from apps.core.json import dumps
from apps.core.verbatim_json import searchable


class End(NamedTuple):
    """The end of a run; JSON fields as text.

    `expected_status` is the status that the run must have. `state` is None if no checkpoint was
    written, and `null` if checkpoints may have been written but could not be read.
    """

    run_id: UUID
    attempt: int
    expected_status: str
    status: str
    error: str | None
    thread_status: str
    values: str | None = None
    state: str | None = None
    interrupts: str | None = None


def transpose(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Transpose rows to the arrays that the statements unnest."""
    return [list(column) for column in zip(*rows, strict=True)]


def interrupt_error(reason: str) -> str:
    """The error of a run that was stopped on request."""
    return dumps({"error": "UserInterrupt", "message": reason}).decode()


CANCELLED_ERROR = interrupt_error("The run was cancelled.")


def superseded_error(by: UUID) -> str:
    return interrupt_error(f"superseded by run {by}")


# Skips a run that must be rolled back; the caller notices the missing id.
END_RUNS = """
WITH params AS MATERIALIZED (
    SELECT * FROM unnest(
        %b::uuid[], %b::int[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
        %b::text[], %b::text[]
    ) AS g(id, attempt, expected_status, status, error, thread_status, "values", state, interrupts)
), ended AS (
    UPDATE agent_server_agentrun r
    SET status = g.status, error = g.error::jsonb, lease_owner = '', lease_expires_at = NULL,
        ended_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM params g
    WHERE r.id = g.id AND r.attempt = g.attempt AND r.status = g.expected_status
      AND r.cancel_action <> 'rollback'
    RETURNING r.id, r.thread_id, r.superseded_by
), finished AS (
    SELECT e.*, EXISTS (
        SELECT 1 FROM agent_server_agentrun o
        WHERE o.thread_id = e.thread_id AND o.status IN ('pending', 'running')
          AND NOT EXISTS (SELECT 1 FROM ended WHERE ended.id = o.id)
    ) AS is_followed
    FROM ended e
)
UPDATE agent_server_thread t
SET status = CASE WHEN e.is_followed THEN 'busy' ELSE g.thread_status END,
    error = CASE
        WHEN g.thread_status = 'error' THEN g.error::jsonb
        WHEN e.is_followed AND e.superseded_by IS NOT NULL THEN jsonb_build_object(
            'error', 'UserInterrupt', 'message', 'superseded by run ' || e.superseded_by)
        WHEN e.is_followed AND g.expected_status = 'pending' THEN t.error
    END,
    "values" = COALESCE(g."values"::json, t."values"),
    state = CASE WHEN g.state IS NULL THEN t.state
                 ELSE NULLIF(g.state, 'null')::json END,
    interrupts = COALESCE(g.interrupts::json, t.interrupts, '{}'::json),
    updated_at = clock_timestamp(),
    state_updated_at = CASE WHEN g.state IS NULL THEN t.state_updated_at
                            ELSE clock_timestamp() END
FROM finished e JOIN params g ON g.id = e.id
WHERE t.id = e.thread_id
RETURNING e.id
"""

# Parameters: run ids, attempts, expected statuses. The thread returns to its status before the run.
# No run has ended on it since, so its values and state are unchanged.
_DELETE_RUNS = f"""
WITH params AS MATERIALIZED (
    SELECT * FROM unnest(%b::uuid[], %b::int[], %b::text[]) AS g(id, attempt, expected_status)
), deleted AS (
    DELETE FROM agent_server_agentrun r USING params g
    WHERE r.id = g.id AND r.attempt = g.attempt AND r.status = g.expected_status
    RETURNING r.id, r.thread_id
), finished AS (
    SELECT thread_id, EXISTS (
        SELECT 1 FROM agent_server_agentrun o
        WHERE o.thread_id = deleted.thread_id AND o.status IN ('pending', 'running')
          AND NOT EXISTS (SELECT 1 FROM deleted g WHERE g.id = o.id)
    ) AS is_followed
    FROM deleted GROUP BY thread_id
)
UPDATE agent_server_thread t
SET status = CASE
        WHEN e.is_followed THEN 'busy'
        WHEN t.error ->> 'error' <> 'UserInterrupt' THEN 'error'
        WHEN jsonb_array_length(COALESCE({searchable("t.state")} -> 'next', '[]')) > 0
            THEN 'interrupted'
        ELSE 'idle' END,
    error = CASE WHEN e.is_followed OR t.error ->> 'error' <> 'UserInterrupt' THEN t.error END,
    updated_at = clock_timestamp()
FROM finished e
WHERE t.id = e.thread_id
"""  # noqa: S608  (built from constants)

# Parameters of each statement: threads, runs. Writes of runs that still exist are kept.
_DELETED = "= ANY(%b::uuid[]) AND NOT EXISTS (SELECT 1 FROM agent_server_agentrun r WHERE r.id = "
_DELETE_WRITES = [
    f"""
    DELETE FROM agent_server_checkpoint c
    WHERE c.thread_id = ANY(%b::uuid[]) AND c.run_id {_DELETED} c.run_id)
    """,  # noqa: S608
    f"""
    UPDATE agent_server_checkpointwrite w
    SET channel = w.replaced ->> 'channel', kind = w.replaced ->> 'kind',
        blob = decode(w.replaced ->> 'blob', 'base64'),
        run_id = (w.replaced ->> 'run_id')::uuid, replaced = NULL
    WHERE w.thread_id = ANY(%b::uuid[]) AND w.replaced IS NOT NULL AND w.run_id {_DELETED} w.run_id)
    """,  # noqa: S608
    f"""
    DELETE FROM agent_server_checkpointwrite w
    WHERE w.thread_id = ANY(%b::uuid[]) AND w.run_id {_DELETED} w.run_id)
    """,  # noqa: S608
]
# Deletes writes and channel values that no checkpoint of these threads refers to.
COLLECT_GARBAGE = [
    """
    DELETE FROM agent_server_checkpointwrite w
    WHERE w.thread_id = ANY(%s::uuid[]) AND NOT EXISTS (
        SELECT 1 FROM agent_server_checkpoint c
        WHERE c.thread_id = w.thread_id AND c.namespace = w.namespace
          AND c.checkpoint_id = w.checkpoint_id
    )
    """,
    """
    DELETE FROM agent_server_checkpointblob b
    WHERE b.thread_id = ANY(%s::uuid[]) AND NOT EXISTS (
        SELECT 1 FROM agent_server_checkpoint c
        WHERE c.thread_id = b.thread_id AND c.namespace = b.namespace
          AND c.blob_versions ->> b.channel = b.version
    )
    """,
]

BACK_OFF = """clock_timestamp() + CASE
    WHEN r.crash_count < 1 OR r.cancel_action <> '' THEN interval '0'
    ELSE make_interval(secs => least(60, 2 ^ (r.crash_count - 1))) END"""
"""When the run may be claimed after another crash: at once, then after 1, 2, 4 ... 60 seconds."""

_RETURN_TO_QUEUE = """
UPDATE agent_server_agentrun r
SET status = 'pending', lease_owner = '', lease_expires_at = NULL, updated_at = clock_timestamp(),
    crash_count = r.crash_count + {lost}, available_at = {available}
"""
UNDO_CLAIM = _RETURN_TO_QUEUE.format(lost=0, available="r.available_at")

TRACE_DELAY_SECONDS = 10.0
"""Time after a run within which its tracing SDK has sent the end of the trace."""
LOST_ERROR = "The attempt was lost: its process ended before the run did."
_UNREPORTED_COLUMNS = "(id, workspace_id, run_id, attempt, error, ended_at, created_at, due_at)"
# Requests that the process sent before its end are stored by then, unless the machine is loaded.
_FIRST_CHECK = "clock_timestamp(), clock_timestamp() + interval '5 seconds'"
# The name of the error makes the runs of the trace cancelled, not failed.
_RUN_ERROR = (
    "CASE WHEN r.error ->> 'error' = 'UserInterrupt' THEN 'UserInterrupt: ' ELSE '' END"
    " || COALESCE(r.error ->> 'message', '')"
)

# Parameters: run ids, attempts. Executed before the runs are released or deleted.
ADD_UNREPORTED = f"""
INSERT INTO agent_server_unreportedattempt {_UNREPORTED_COLUMNS}
SELECT gen_random_uuid(), r.workspace_id, r.id, r.attempt,
       CASE WHEN r.status = 'running' THEN '{LOST_ERROR}' ELSE {_RUN_ERROR} END,
       COALESCE(r.ended_at, clock_timestamp()), {_FIRST_CHECK}
FROM unnest(%b::uuid[], %b::int[]) AS a(run_id, attempt)
JOIN agent_server_agentrun r ON r.id = a.run_id AND r.attempt = a.attempt
JOIN deployments_deployment d ON d.id = r.deployment_id AND d.tracing
ON CONFLICT DO NOTHING
"""  # noqa: S608  (built from constants)

# Runs that ended shortly before their worker did. Their hosts end with the worker, possibly before
# they have sent the end of the traces. The newest end is the reference, because all workers may
# have been away for long; the interval includes the time until the end of one worker is noticed.
ADD_RECENTLY_ENDED = f"""
INSERT INTO agent_server_unreportedattempt {_UNREPORTED_COLUMNS}
SELECT gen_random_uuid(), r.workspace_id, r.id, r.attempt, {_RUN_ERROR}, r.ended_at, {_FIRST_CHECK}
FROM agent_server_agentrun r
JOIN deployments_deployment d ON d.id = r.deployment_id AND d.tracing
WHERE r.ended_at > (SELECT max(ended_at) FROM agent_server_agentrun) - interval '2 minutes'
  AND r.attempt > 0
ON CONFLICT DO NOTHING
"""  # noqa: S608  (built from constants)


def return_lost(where: str) -> str:
    """Build the statement that returns lost runs to the queue and returns their threads."""
    return f"""
WITH lost AS (
    {_RETURN_TO_QUEUE.format(lost=1, available=BACK_OFF)}
    WHERE {where}
    RETURNING r.id, r.attempt, r.thread_id, r.workspace_id, r.deployment_id
), unreported AS (
    INSERT INTO agent_server_unreportedattempt {_UNREPORTED_COLUMNS}
    SELECT gen_random_uuid(), r.workspace_id, r.id, r.attempt, '{LOST_ERROR}', clock_timestamp(),
           {_FIRST_CHECK}
    FROM lost r JOIN deployments_deployment d ON d.id = r.deployment_id AND d.tracing
    ON CONFLICT DO NOTHING
)
SELECT thread_id FROM lost
"""  # noqa: S608  (built from constants)


# Leases cannot be renewed while PostgreSQL is down, so no lease counts as expired until one lease
# length after its start.
RETURN_EXPIRED = return_lost("""r.id IN (
    SELECT id FROM agent_server_agentrun
    WHERE status = 'running' AND lease_expires_at < clock_timestamp()
      AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => %s::float8)
    ORDER BY lease_expires_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
)""")

SqlBatch = list[tuple[str, list[Any]]]
"""Statements with parameters, for one transaction."""


def end(ends: Sequence[End]) -> SqlBatch:
    """Statements that end runs and their A2A tasks, and schedule what is sent of both."""
    run_ids = [end.run_id for end in ends]
    return [
        (END_RUNS, transpose(ends)),
        (a2a.END_TASKS, [run_ids]),
        (a2a.ADD_PUSHES_OF_ENDED, [run_ids]),
        (webhooks.ADD_DUE, [run_ids]),
    ]


def roll_back_runs(threads: Sequence[UUID], runs: Sequence[tuple[UUID, int, str]]) -> SqlBatch:
    """Statements that delete runs `(id, attempt, expected_status)` with all their writes."""
    thread_ids, run_ids = list(threads), [run[0] for run in runs]
    return [
        (_DELETE_RUNS, transpose(runs)),
        *[(text, [thread_ids, run_ids]) for text in _DELETE_WRITES],
        *[(text, [thread_ids]) for text in COLLECT_GARBAGE],
    ]
