"""Enqueue the tasks of deployments by name, after commit.

A send that fails is not an error: the row stays and `progress.sweep` sends it again.
"""

from __future__ import annotations

from uuid import UUID

from celery import current_app
from django.db import transaction


def build_revision(revision_id: UUID) -> None:
    """Have a builder claim the revision."""
    _send("deployments.build_revision", revision_id)


def purge_deployment(deployment_id: UUID) -> None:
    """Have a worker remove the data of a deleted deployment."""
    _send("deployments.purge_deployment", deployment_id)


def _send(task: str, row_id: UUID) -> None:
    # Not a `partial`: Django logs the `__qualname__` of a robust hook that fails.
    def send() -> None:
        current_app.send_task(task, [str(row_id)])

    transaction.on_commit(send, robust=True)
