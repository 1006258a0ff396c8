"""Cancels runs: on request, when a newer run supersedes them, or when they are deleted.

A pending run ends in the caller's transaction. A running one is marked and ended by its worker or,
if that is lost, by the worker that claims the run next. PostgreSQL stores the decision; the
messages only speed up its effect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.db import transaction

from apps.agent_server import prepared_sql, run_state_sql
from apps.agent_server.run_state_sql import End
from apps.agent_server.scope import Scope
from apps.agent_server.services import dispatch
from apps.agent_server.statuses import OPEN, RunStatus
from apps.usage import storage
from apps.usage.models import StorageKind

Action = Literal["interrupt", "rollback"]
StatusFilter = Literal["pending", "running", "all"]

MAX_THREADS_PER_TRANSACTION = 500
"""Threads whose runs are cancelled in one transaction."""

_MATCHING = """
SELECT DISTINCT r.thread_id FROM agent_server_agentrun r
JOIN agent_server_thread t ON t.id = r.thread_id
WHERE r.workspace_id = %(workspace)s AND r.deployment_id = %(deployment)s
  AND t.metadata @> %(visible)s::jsonb AND r.status = ANY(%(statuses)s)
  AND (%(thread)s::uuid IS NULL OR t.thread_id = %(thread)s)
  AND (%(runs)s::uuid[] IS NULL OR r.id = ANY(%(runs)s))
ORDER BY r.thread_id
"""
_BEYOND_STORAGE = """
SELECT DISTINCT r.thread_id FROM usage_storedbytes s
JOIN agent_server_agentrun r
  ON r.workspace_id = s.workspace_id AND r.status IN ('pending', 'running')
WHERE s.kind = %(kind)s AND s.size > %(size)s
ORDER BY r.thread_id
"""
_LOCK_THREADS = """
SELECT id FROM agent_server_thread WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE
"""
_LOCK_RUNS = """
SELECT id, thread_id, attempt, status, cancel_action FROM agent_server_agentrun
WHERE thread_id = ANY(%(threads)s) AND status = ANY(%(statuses)s)
  AND (%(runs)s::uuid[] IS NULL OR id = ANY(%(runs)s)) AND id IS DISTINCT FROM %(by)s
ORDER BY id FOR NO KEY UPDATE
"""
# A requested rollback is not downgraded to an interrupt.
_MARK = """
UPDATE agent_server_agentrun
SET cancel_action = CASE WHEN cancel_action = 'rollback' THEN cancel_action ELSE %(action)s END,
    superseded_by = coalesce(%(by)s, superseded_by), updated_at = clock_timestamp()
WHERE id = ANY(%(runs)s) AND status = 'running'
RETURNING id
"""
_REMOVE = "DELETE FROM agent_server_agentrun WHERE id = %s"
_MARK_THREAD = """
UPDATE agent_server_thread SET error = %s::jsonb WHERE id = %s RETURNING id
"""


class _OpenRun(NamedTuple):
    run_id: UUID
    thread: UUID
    attempt: int
    status: str
    cancel_action: str


def cancel(
    scope: Scope,
    action: Action,
    *,
    thread_id: UUID | None = None,
    run_ids: Collection[UUID] | None = None,
    status: StatusFilter = "all",
) -> int:
    """Cancel the matching open runs; return how many there were. Safe to repeat."""
    statuses = ["pending", "running"] if status == "all" else [status]
    runs = None if run_ids is None else list(run_ids)
    filters = {"runs": runs, "statuses": statuses}
    workspace, deployment = scope.key
    agent = {"workspace": workspace, "deployment": deployment, "visible": scope.visible}
    rows = prepared_sql.fetch_rows(_MATCHING, {**agent, **filters, "thread": thread_id})
    return _stop_all([row[0] for row in rows], action, filters)


def cancel_beyond_storage() -> int:
    """Cancel the open runs of workspaces whose threads exceed their limit by a tenth.

    No new run is created at the limit, but open ones could save checkpoints for ever. Returns how
    many there were. Safe to repeat.
    """
    size = storage.limit_of(StorageKind.THREADS) * 11 // 10
    parameters = {"kind": StorageKind.THREADS.value, "size": size}
    rows = prepared_sql.fetch_rows(_BEYOND_STORAGE, parameters)
    filters = {"runs": None, "statuses": ["pending", "running"]}
    return _stop_all([row[0] for row in rows], "interrupt", filters)


def _stop_all(threads: Sequence[UUID], action: Action, filters: dict[str, Any]) -> int:
    stopped = 0
    for first in range(0, len(threads), MAX_THREADS_PER_TRANSACTION):
        with transaction.atomic():
            stopped += _stop(threads[first : first + MAX_THREADS_PER_TRANSACTION], action, filters)
    return stopped


def preempt(thread: UUID, action: Action, by: UUID) -> None:
    """Cancel all other open runs of the thread for the run `by`. Requires a transaction."""
    if _stop([thread], action, {"runs": None, "statuses": ["pending", "running"]}, by):
        prepared_sql.fetch_row(_MARK_THREAD, [run_state_sql.superseded_error(by), thread])


@transaction.atomic
def delete_run(thread: UUID, run_id: UUID) -> bool:
    """Delete the run's row, after ending an open run; False if there is no such run."""
    prepared_sql.fetch_rows(_LOCK_THREADS, [[thread]])
    filters = {"threads": [thread], "runs": [run_id], "statuses": RunStatus.values, "by": None}
    rows = prepared_sql.fetch_rows(_LOCK_RUNS, filters)
    if not rows:
        return False
    run = _OpenRun(*rows[0])
    if run.status in OPEN:
        never_began = run.status == RunStatus.PENDING and not run.attempt
        if never_began or run.cancel_action == "rollback":
            _roll_back([run])
        else:
            _execute_all(run_state_sql.end([_interrupted(run, run_state_sql.CANCELLED_ERROR)]))
        stop_deleted([run_id])
    prepared_sql.execute(_REMOVE, [run_id])
    return True


def stop_deleted(run_ids: Collection[UUID]) -> None:
    """Stop runs whose rows this transaction deletes, and publish their end to readers.

    Their later writes are rejected because the rows are gone; the message stops the code.
    """
    for run_id in run_ids:
        _after_commit(dispatch.cancel_run, run_id)
        _after_commit(dispatch.announce_run_end, run_id, RunStatus.INTERRUPTED.value)


def _stop(
    threads: Sequence[UUID], action: Action, filters: dict[str, Any], by: UUID | None = None
) -> int:
    prepared_sql.fetch_rows(_LOCK_THREADS, [list(threads)])
    rows = prepared_sql.fetch_rows(_LOCK_RUNS, {**filters, "threads": list(threads), "by": by})
    runs = [_OpenRun(*row) for row in rows]
    pending = [run for run in runs if run.status == RunStatus.PENDING]
    running = [run.run_id for run in runs if run.status == RunStatus.RUNNING]
    if pending and action == "rollback":
        _roll_back(pending)
    elif pending:
        error = run_state_sql.superseded_error(by) if by else run_state_sql.CANCELLED_ERROR
        _execute_all(run_state_sql.end([_interrupted(run, error) for run in pending]))
    for run in pending:
        _after_commit(dispatch.announce_run_end, run.run_id, RunStatus.INTERRUPTED.value)
    if running:
        prepared_sql.fetch_rows(_MARK, {"runs": running, "action": action, "by": by})
    for run_id in running:
        _after_commit(dispatch.cancel_run, run_id)
    return len(runs)


def _roll_back(runs: Sequence[_OpenRun]) -> None:
    threads = sorted({run.thread for run in runs})
    _execute_all(
        run_state_sql.roll_back_runs(
            threads, [(run.run_id, run.attempt, run.status) for run in runs]
        )
    )


def _interrupted(run: _OpenRun, error: str) -> End:
    # A lost attempt may have left checkpoints, so reads of the state call the graph.
    state = "null" if run.attempt else None
    return End(
        run.run_id, run.attempt, run.status, "interrupted", error, "interrupted", state=state
    )


def _execute_all(batch: run_state_sql.SqlBatch) -> None:
    for statement, parameters in batch:
        prepared_sql.execute(statement, parameters)


def _after_commit(work: Any, *arguments: Any) -> None:
    transaction.on_commit(lambda: work(*arguments), robust=True)
