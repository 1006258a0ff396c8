"""Recovery of runs and threads after crashes, lost messages and loss of Redis."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from apps.agent_server import prepared_sql, run_state_sql
from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.services import delete_threads, dispatch
from apps.agent_server.statuses import OPEN, RunStatus
from apps.deployments.statuses import DeploymentStatus

DISPATCH_GRACE = timedelta(seconds=3)
"""A pending run on an idle thread that waits longer than this has lost its message."""
BATCH_SIZE = 1_000
TEMPORARY_THREAD_RETENTION = timedelta(minutes=2)


def sweep() -> None:
    """Return lost runs to the queue and notify workers. Safe to repeat."""
    dispatch.enqueue_threads({*requeue_lost_runs(), *find_stalled_threads()})


def requeue_lost_runs() -> set[UUID]:
    """Put runs with an expired lease back to `pending`; return their threads.

    A run that was lost too often, or is being cancelled, is ended by the worker that claims it.
    """
    lease = settings.AGENT_RUN_LEASE_SECONDS
    rows = prepared_sql.fetch_rows(run_state_sql.RETURN_EXPIRED, [lease, BATCH_SIZE])
    if rows:
        prepared_sql.execute(run_state_sql.ADD_RECENTLY_ENDED, [])
    return {row[0] for row in rows}


def find_stalled_threads() -> set[UUID]:
    """Threads with a run that has been claimable for longer than `DISPATCH_GRACE`."""
    runs = AgentRun.objects.across_workspaces(reason="messages of any workspace can be lost")
    now = timezone.now()
    pending_runs = runs.filter(
        ~Exists(runs.filter(thread=OuterRef("thread"), status=RunStatus.RUNNING)),
        ~Q(deployment__status=DeploymentStatus.STOPPED),
        status=RunStatus.PENDING,
        available_at__lt=now,
        updated_at__lt=now - DISPATCH_GRACE,
    )
    return set(
        pending_runs.order_by("available_at").values_list("thread_id", flat=True)[:BATCH_SIZE]
    )


def resume_runs(deployment_id: UUID) -> None:
    """Queue the threads whose runs waited while the deployment was stopped. Safe to repeat.

    At most `BATCH_SIZE`; the sweeper finds the rest.
    """
    runs = AgentRun.objects.across_workspaces(reason="the task has only the deployment id")
    pending = runs.filter(
        deployment=deployment_id, status=RunStatus.PENDING, available_at__lte=timezone.now()
    )
    threads = pending.order_by("available_at").values_list("thread_id", flat=True)
    dispatch.enqueue_threads(dict.fromkeys(threads[:BATCH_SIZE]))


def purge_temporary_threads() -> int:
    """Delete removed threads and those of ended stateless runs; return how many.

    The latter are kept for a while so that a disconnected caller can still read the result.
    """
    now = timezone.now()
    threads = Thread.objects.across_workspaces(
        reason="stateless runs of all workspaces leave threads"
    )
    runs = AgentRun.objects.across_workspaces(reason="the runs of those threads")
    open_runs = runs.filter(thread=OuterRef("pk"), status__in=sorted(OPEN))
    idle_threads = threads.filter(
        ~Exists(open_runs), temporary=True, updated_at__lt=now - TEMPORARY_THREAD_RETENTION
    ).order_by("updated_at")
    deleted = 0
    while ids := list(idle_threads.values_list("pk", flat=True)[:BATCH_SIZE]):
        delete_threads.purge(ids)
        deleted += len(ids)
    return deleted
