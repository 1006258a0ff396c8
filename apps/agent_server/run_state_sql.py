"""Every end of a run, whichever way it comes.

`END` keeps the run with its outcome; `UNDO` takes it away with all that it saved, as if it had
never been. Both are fenced by `(id, attempt, was)`, and both leave the thread as it is to be seen.
The engine's ledger and the services use the same statements, each under the locks of the threads
and of the runs, taken in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from apps.agent_server.webhooks import statements as webhooks
from apps.core.json import dumps

SUPERSEDED = "UserInterrupt"
"""The name of the error that a thread shows while a run is at work that stopped another."""


class End(NamedTuple):
    """How a run ends; JSON as text.

    `was` is the status under which the caller may end it. `state` is absent when no checkpoint was
    written, and `null` when some may have been and nobody could look.
    """

    run_id: UUID
    attempt: int
    was: str
    status: str
    error: str | None
    thread_status: str
    values: str | None = None
    state: str | None = None
    interrupts: str | None = None


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as the arrays that statements unnest."""
    return [list(column) for column in zip(*rows, strict=True)]


def interrupted(reason: str) -> str:
    """The error of a run that was stopped because somebody wanted it."""
    return dumps({"error": "UserInterrupt", "message": reason}).decode()


CANCELLED = interrupted("The run was cancelled.")


def superseded(by: UUID) -> str:
    return interrupted(f"superseded by run {by}")


# A run that is to be undone is not ended: whoever tries learns that its row stayed as it was.
END = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %b::uuid[], %b::int[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[],
        %b::text[], %b::text[]
    ) AS g(id, attempt, was, status, error, thread_status, "values", state, interrupts)
), ended AS (
    UPDATE agent_server_agentrun r
    SET status = g.status, error = g.error::jsonb, lease_owner = '', lease_expires_at = NULL,
        ended_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM given g
    WHERE r.id = g.id AND r.attempt = g.attempt AND r.status = g.was
      AND r.cancel_action <> 'rollback'
    RETURNING r.id, r.thread_id, r.superseded_by
), left_behind AS (
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
        WHEN e.is_followed AND g.was = 'pending' THEN t.error
    END,
    "values" = CASE WHEN g.state IS NULL OR g.state = 'null' THEN t."values"
                    ELSE g."values"::jsonb END,
    state = CASE WHEN g.state IS NULL THEN t.state
                 ELSE NULLIF(g.state::jsonb, 'null'::jsonb) END,
    interrupts = COALESCE(g.interrupts::jsonb, t.interrupts, '{}'::jsonb),
    updated_at = clock_timestamp(),
    state_updated_at = CASE WHEN g.state IS NULL THEN t.state_updated_at
                            ELSE clock_timestamp() END
FROM left_behind e JOIN given g ON g.id = e.id
WHERE t.id = e.thread_id
RETURNING e.id
"""

# Parameters: run ids, attempts, what they were. The thread goes back to what it was before: since
# then no run has ended on it, so its values and its state are still those.
_REMOVE_RUNS = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%b::uuid[], %b::int[], %b::text[]) AS g(id, attempt, was)
), gone AS (
    DELETE FROM agent_server_agentrun r USING given g
    WHERE r.id = g.id AND r.attempt = g.attempt AND r.status = g.was
    RETURNING r.id, r.thread_id
), left_behind AS (
    SELECT thread_id, EXISTS (
        SELECT 1 FROM agent_server_agentrun o
        WHERE o.thread_id = gone.thread_id AND o.status IN ('pending', 'running')
          AND NOT EXISTS (SELECT 1 FROM gone g WHERE g.id = o.id)
    ) AS is_followed
    FROM gone GROUP BY thread_id
)
UPDATE agent_server_thread t
SET status = CASE
        WHEN e.is_followed THEN 'busy'
        WHEN t.error ->> 'error' <> 'UserInterrupt' THEN 'error'
        WHEN jsonb_array_length(COALESCE(t.state -> 'next', '[]')) > 0 THEN 'interrupted'
        ELSE 'idle' END,
    error = CASE WHEN e.is_followed OR t.error ->> 'error' <> 'UserInterrupt' THEN t.error END,
    updated_at = clock_timestamp()
FROM left_behind e
WHERE t.id = e.thread_id
"""

# Each of the following: threads, runs. What is removed belongs to runs that are gone: a run that
# the statement above left alone keeps everything.
_GONE = "= ANY(%b::uuid[]) AND NOT EXISTS (SELECT 1 FROM agent_server_agentrun r WHERE r.id = "
_REMOVE_SAVED = [
    f"""
    DELETE FROM agent_server_checkpoint c
    WHERE c.thread_id = ANY(%b::uuid[]) AND c.run_id {_GONE} c.run_id)
    """,  # noqa: S608
    f"""
    UPDATE agent_server_checkpointwrite w
    SET channel = w.replaced ->> 'channel', kind = w.replaced ->> 'kind',
        blob = decode(w.replaced ->> 'blob', 'base64'),
        run_id = (w.replaced ->> 'run_id')::uuid, replaced = NULL
    WHERE w.thread_id = ANY(%b::uuid[]) AND w.replaced IS NOT NULL AND w.run_id {_GONE} w.run_id)
    """,  # noqa: S608
    f"""
    DELETE FROM agent_server_checkpointwrite w
    WHERE w.thread_id = ANY(%b::uuid[]) AND w.run_id {_GONE} w.run_id)
    """,  # noqa: S608
]
# What no checkpoint of these threads refers to any more.
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
    WHEN r.losses < 1 OR r.cancel_action <> '' THEN interval '0'
    ELSE make_interval(secs => least(60, 2 ^ (r.losses - 1))) END"""
"""Start of the attempt after one more loss: at once, then after 1, 2, 4 ... 60 seconds."""

_RETURN_TO_QUEUE = """
UPDATE agent_server_agentrun r
SET status = 'pending', lease_owner = '', lease_expires_at = NULL, updated_at = clock_timestamp(),
    losses = r.losses + {lost}, available_at = {available}
"""
RETURN_LOST = _RETURN_TO_QUEUE.format(lost=1, available=BACK_OFF)
UNDO_CLAIM = _RETURN_TO_QUEUE.format(lost=0, available="r.available_at")

# Nobody renews a lease while the database is away: those who held one get as long again.
EXPIRED = (
    RETURN_LOST  # noqa: S608  (our own words)
    + """
WHERE r.id IN (
    SELECT id FROM agent_server_agentrun
    WHERE status = 'running' AND lease_expires_at < clock_timestamp()
      AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => %s::float8)
    ORDER BY lease_expires_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING r.thread_id
"""
)

Deed = list[tuple[str, list[Any]]]


def end(ends: Sequence[End]) -> Deed:
    """Write how these runs ended, and what is to be told of it."""
    return [(END, columns(ends)), (webhooks.ADD_DUE, [[end.run_id for end in ends]])]


def undo(threads: Sequence[UUID], runs: Sequence[tuple[UUID, int, str]]) -> Deed:
    """Take these runs, `(id, attempt, was)`, away with everything they saved on these threads."""
    places, ids = list(threads), [run[0] for run in runs]
    return [
        (_REMOVE_RUNS, columns(runs)),
        *[(text, [places, ids]) for text in _REMOVE_SAVED],
        *[(text, [places]) for text in COLLECT_GARBAGE],
    ]
