"""Celery's shells around builds; what must happen is a row, and the sweeper sends it again."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from celery import Task, shared_task, signals
from django.db import DatabaseError, transaction

from apps.core.connections import close_dead
from apps.deployments import services
from apps.deployments.builds import build
from apps.deployments.services import recovery

log = logging.getLogger(__name__)


def send(task: Task[[str], None], row_id: UUID) -> None:
    """Send the task for a row once it is committed; the sweeper sends what could not leave."""
    transaction.on_commit(lambda: task.delay(str(row_id)), robust=True)


@shared_task(name="deployments.build_revision")
def build_revision(revision_id: str) -> None:
    close_dead()
    build.build(UUID(revision_id))


@shared_task(name="deployments.erase_deployment")
def erase_deployment(deployment_id: str) -> None:
    close_dead()
    services.erase_deployment(UUID(deployment_id))


@shared_task(name="deployments.sweep")
def sweep() -> None:
    close_dead()
    recovery.sweep()


@signals.worker_ready.connect
def builder_is_ready(sender: Any, **_: object) -> None:
    """A builder that starts looks at once for what the one before it left."""
    if not str(sender.hostname).startswith("builder"):
        return
    try:
        recovery.sweep()
    except DatabaseError:
        log.exception("the builder's first sweep failed; beat will repeat it")
