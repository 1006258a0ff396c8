"""Celery tasks of deployments; each can be repeated safely."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from celery import shared_task, signals
from django.db import DatabaseError

from apps.core.connections import close_dead
from apps.deployments import services
from apps.deployments.builds import build
from apps.deployments.services import progress

log = logging.getLogger(__name__)


@shared_task(name="deployments.build_revision")
def build_revision(revision_id: str) -> None:
    close_dead()
    build.build(UUID(revision_id))


@shared_task(name="deployments.purge_deployment")
def purge_deployment(deployment_id: str) -> None:
    close_dead()
    services.purge_deployment(UUID(deployment_id))


@shared_task(name="deployments.sweep")
def sweep() -> None:
    close_dead()
    progress.sweep()


@signals.worker_ready.connect
def sweep_on_start(sender: Any, **_: object) -> None:
    """Pick up the work of a previous builder when a new one starts."""
    if not str(sender.hostname).startswith("builder"):
        return
    try:
        progress.sweep()
    except DatabaseError:
        log.exception("the first sweep of the builder failed; the schedule repeats it")
