"""Fires crons: a due cron is a row, which one worker claims.

Beat triggers this every second. Claim, run and next due time are one transaction, so concurrent
workers and crashes yield one run per due time. All due times that passed during an outage yield a
single run, because a backlog of runs would overload the agent.
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from apps.agent_server import errors
from apps.agent_server.models import Cron, Thread
from apps.agent_server.querysets import CronQuerySet
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope, graph_context_for
from apps.agent_server.services import runs
from apps.agent_server.services.crons import schedule_next, with_cron_id, without_cron_id
from apps.core.errors import AppError
from apps.core.json import dumps
from apps.deployments import routes

log = logging.getLogger(__name__)
BATCH_SIZE = 100


def fire_due() -> int:
    """Fire every due cron that no other worker holds; return how many fired."""
    fired, skipped = 0, set[UUID]()
    while True:
        due = _due().exclude(pk__in=skipped).order_by("due_at").values_list("pk", "thread_id")
        batch = list(due[:BATCH_SIZE])
        if not batch:
            return fired
        for cron_id, thread_pk in batch:
            try:
                has_fired = fire(cron_id, thread_pk)
            except DatabaseError:  # such as a deadlock: the cron is still due
                log.exception("Firing cron %s failed, it will be retried.", cron_id)
                has_fired = False
            fired += has_fired
            if not has_fired:
                skipped.add(cron_id)


def _due() -> CronQuerySet:
    rows = Cron.objects.across_workspaces(reason="one schedule fires the crons of all workspaces")
    return rows.filter(due_at__lte=timezone.now())


@transaction.atomic
def fire(cron_id: UUID, thread_pk: UUID | None) -> bool:
    """Start the cron's run and set the next due time; False if it is not due or is locked.

    A rejected run (a busy thread, a missing graph, a stopped deployment) consumes the due time.
    """
    if thread_pk is not None:
        # Threads are locked first everywhere; deleting the thread deletes the cron.
        threads = Thread.objects.across_workspaces(reason="the cron's own thread")
        threads.select_for_update(no_key=True).filter(pk=thread_pk).first()
    rows = _due().filter(pk=cron_id).select_for_update(skip_locked=True, no_key=True, of=("self",))
    cron = rows.select_related("deployment", "thread").first()
    if cron is None or cron.due_at is None:
        return False
    try:
        with transaction.atomic():
            _start(cron)
    except AppError as error:
        log.warning("cron %s of %s: %s", cron.pk, cron.deployment.slug, error.detail)
    except DatabaseError:
        raise
    except Exception:
        log.exception("cron %s of %s cannot fire", cron.pk, cron.deployment.slug)
    # A due time is never repeated, even if clocks differ.
    schedule_next(cron, max(timezone.now(), cron.due_at))
    cron.save(update_fields=["next_run_date", "due_at"])
    return True


def _start(cron: Cron) -> None:
    route = routes.find_route(cron.deployment.slug)
    if route is None or route.deployment_id != cron.deployment_id:
        raise errors.NoSuchAgent
    if route.is_stopped:
        return
    scope = Scope(
        route, user=cron.user, graph_context=graph_context_for(cron.user) if cron.user else {}
    )
    body = _build_run(cron)
    if cron.thread is not None:
        runs.create_on_thread(scope, cron.thread.thread_id, body)
        return
    run = runs.create_stateless(scope, body)
    with connection.cursor() as cursor:
        cursor.execute(
            _MERGE_THREAD_METADATA, [dumps(cron.metadata).decode(), *scope.key, run.thread_id]
        )


_MERGE_THREAD_METADATA = """
UPDATE agent_server_thread SET metadata = %s::jsonb || metadata
WHERE workspace_id = %s AND deployment_id = %s AND thread_id = %s
"""


def _build_run(cron: Cron) -> RunBody:
    """Build a run from the payload, with the cron's metadata and id."""
    payload = without_cron_id(cron.payload)
    payload["metadata"] = {**cron.metadata, **payload.get("metadata", {})}
    body = RunBody.check({**payload, "on_completion": cron.on_run_completed})
    configurable = with_cron_id({}, cron.pk)["config"]["configurable"]
    config = body.config.model_copy(
        update={"configurable": {**body.config.configurable, **configurable}}
    )
    return body.model_copy(update={"config": config})
