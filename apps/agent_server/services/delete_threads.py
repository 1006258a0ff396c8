"""Deletion of threads: they disappear at once, their data is deleted in batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from apps.agent_server import errors
from apps.agent_server.models import A2ATask, AgentRun, Cron, Thread
from apps.agent_server.scope import Scope
from apps.agent_server.services import checkpoints, dispatch, threads
from apps.agent_server.statuses import RunStatus, TTLStrategy
from apps.core.ids import uuid7

PURGE_AGE = timedelta(days=1)
BATCH_SIZE = 5_000
"""Rows that one transaction deletes."""
_CHECKPOINT_TABLES = ("checkpointwrite", "checkpointblob", "checkpoint")


def delete(scope: Scope, thread_id: UUID) -> None:
    """Delete the thread with its runs and state, and stop its open runs.

    Later writes of such a run are rejected, because its row is gone.
    """
    thread = (
        threads.queryset_for(scope).filter(thread_id=thread_id).values_list("pk", flat=True).first()
    )
    if thread is None or not delete_rows([thread]):
        raise errors.ThreadNotFound(thread_id)


@transaction.atomic
def delete_rows(pks: Collection[UUID]) -> int:
    """Make the threads invisible, free their ids and delete their runs; return how many.

    The hidden rows and their checkpoints are left to the purge of temporary threads.
    """
    rows = Thread.objects.across_workspaces(reason="the caller chose these threads")
    locked = rows.filter(pk__in=pks, temporary=False).order_by("pk").select_for_update(no_key=True)
    locked_pks = list(locked.values_list("pk", flat=True))
    if not locked_pks:
        return 0
    runs = AgentRun.objects.across_workspaces(reason="the runs of these threads")
    thread_runs = runs.filter(thread__in=locked_pks)
    for run_id, status in thread_runs.unfinished().values_list("pk", "status"):
        transaction.on_commit(lambda run_id=run_id, status=status: _stop(run_id, status))  # type: ignore[misc]
    thread_runs.delete()
    Cron.objects.across_workspaces(reason="they run on these threads").filter(
        thread__in=locked_pks
    ).delete()
    A2ATask.objects.across_workspaces(reason="they are tasks of these threads").filter(
        thread__in=locked_pks
    ).delete()
    for pk in locked_pks:
        transaction.on_commit(lambda pk=pk: dispatch.announce_thread_deleted(pk))  # type: ignore[misc]
        rows.filter(pk=pk).update(
            thread_id=uuid7(),
            temporary=True,
            edits=F("edits") + 1,
            updated_at=timezone.now() - PURGE_AGE,
        )
    return len(locked_pks)


def _stop(run_id: UUID, status: str) -> None:
    """Notify the worker and the readers of a deleted run."""
    if status == RunStatus.RUNNING:
        dispatch.cancel_run(run_id)
    dispatch.announce_run_end(run_id, RunStatus.INTERRUPTED)


def prune(scope: Scope, thread_ids: Sequence[UUID], strategy: TTLStrategy) -> int:
    """Delete the threads, or all but their latest state; return how many.

    Unknown ids are skipped. If a filter hides threads, an unknown id is an error, so that unknown
    and hidden threads are indistinguishable.
    """
    rows = threads.queryset_for(scope).filter(thread_id__in=set(thread_ids))
    pks = dict(rows.values_list("thread_id", "pk"))
    if scope.visible != "{}":
        for thread_id in thread_ids:
            if thread_id not in pks:
                raise errors.ThreadNotFound(thread_id)
    if strategy == TTLStrategy.DELETE:
        return delete_rows([*pks.values()])
    return sum(checkpoints.keep_latest(pk) for pk in pks.values())


def purge(pks: Sequence[UUID]) -> None:
    """Delete the checkpoints of deleted threads in batches, then the threads."""
    for table in _CHECKPOINT_TABLES:
        statement = f"""
            DELETE FROM agent_server_{table} WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM agent_server_{table} WHERE thread_id = ANY(%s) LIMIT {BATCH_SIZE}
            ))
            """  # noqa: S608  (our own words)
        with connection.cursor() as cursor:
            cursor.execute(statement, [[*pks]])
            while cursor.rowcount == BATCH_SIZE:
                cursor.execute(statement, [[*pks]])
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_server_agentrun WHERE thread_id = ANY(%s)", [[*pks]])
        cursor.execute("DELETE FROM agent_server_thread WHERE id = ANY(%s)", [[*pks]])
