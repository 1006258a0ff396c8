"""How crons fire: a due cron is a row, claimed by whoever looks first.

Beat has somebody look every second. The claim, the run and the move of the cron to its next moment
are one transaction, so however many look, and whoever dies in between, a moment gives one run.
Moments that passed while nobody looked give one run together, not one each: after an hour of
standstill nobody wants an hour's worth of runs at once.
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
    """Fire every cron that is due and that nobody else is firing; return how many did."""
    fired, passed = 0, set[UUID]()
    while True:
        due = _due().exclude(pk__in=passed).order_by("due_at").values_list("pk", "thread_id")
        found = list(due[:BATCH_SIZE])
        if not found:
            return fired
        for cron_id, thread_pk in found:
            try:
                done = fire(cron_id, thread_pk)
            except DatabaseError:  # a deadlock, a restart: the cron is still due
                log.exception("cron %s will be tried again", cron_id)
                done = False
            fired += done
            if not done:
                passed.add(cron_id)


def _due() -> CronQuerySet:
    rows = Cron.objects.across_workspaces(reason="schedules are everybody's")
    return rows.filter(due_at__lte=timezone.now())


@transaction.atomic
def fire(cron_id: UUID, thread_pk: UUID | None) -> bool:
    """Start the cron's run and move it on; False if it is not due (any more), or somebody has it.

    What refuses the run (a busy thread, a graph that is gone) uses the moment up.
    """
    if thread_pk is not None:
        # Threads first, as everywhere; who deletes it takes the cron along.
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
    # Never the same moment twice, whatever the clocks of the machines say.
    schedule_next(cron, max(timezone.now(), cron.due_at))
    cron.save(update_fields=["next_run_date", "due_at"])
    return True


def _start(cron: Cron) -> None:
    route = routes.find(cron.deployment.slug)
    if route is None or route.deployment_id != cron.deployment_id:
        raise errors.NoSuchAgent
    scope = Scope(
        route, user=cron.user, graph_context=graph_context_for(cron.user) if cron.user else {}
    )
    body = _build_run(cron)
    if cron.thread is not None:
        runs.create_on_thread(scope, cron.thread.thread_id, body)
        return
    run = runs.create_stateless(scope, body)
    with connection.cursor() as cursor:
        cursor.execute(_MARK_THREAD, [dumps(cron.metadata).decode(), *scope.key, run.thread_id])


_MARK_THREAD = """
UPDATE agent_server_thread SET metadata = %s::jsonb || metadata
WHERE workspace_id = %s AND deployment_id = %s AND thread_id = %s
"""


def _build_run(cron: Cron) -> RunBody:
    """The payload as a run, with the cron's own metadata and id."""
    payload = without_cron_id(cron.payload)
    payload["metadata"] = {**cron.metadata, **payload.get("metadata", {})}
    body = RunBody.check({**payload, "on_completion": cron.on_run_completed})
    configurable = with_cron_id({}, cron.pk)["config"]["configurable"]
    config = body.config.model_copy(
        update={"configurable": {**body.config.configurable, **configurable}}
    )
    return body.model_copy(update={"config": config})
