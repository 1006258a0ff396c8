"""Enqueue the tasks of deployments by name, and notify open pages, after commit.

A task that is not sent is not an error: the row stays and `progress.sweep` sends it again.
"""

from __future__ import annotations

from uuid import UUID

from asgiref.sync import async_to_sync
from celery import current_app
from channels.layers import get_channel_layer
from django.db import transaction


def build_revision(revision_id: UUID) -> None:
    """Have a builder claim the revision."""
    _send_task("deployments.build_revision", revision_id)


def purge_deployment(deployment_id: UUID) -> None:
    """Have a worker remove the data of a deleted deployment."""
    _send_task("deployments.purge_deployment", deployment_id)


def resume_runs(deployment_id: UUID) -> None:
    """Have the runs executed that waited while the deployment was stopped."""
    _send_task("agent_server.resume_runs", deployment_id)


def _send_task(task: str, row_id: UUID) -> None:
    # Not a `partial`: Django logs the `__qualname__` of a robust hook that fails.
    def send() -> None:
        current_app.send_task(task, [str(row_id)])

    transaction.on_commit(send, robust=True)


def group_name(revision_id: UUID) -> str:
    """Return the Channels group of a revision's open pages."""
    return f"revision.{revision_id}"


def notify_revision_changed(revision_id: UUID) -> None:
    """Notify open pages after commit. A lost message is harmless: pages also poll."""

    # Not a `partial`: Django logs the `__qualname__` of a robust hook that fails.
    def notify() -> None:
        _send_revision_changed(group_name(revision_id))

    transaction.on_commit(notify, robust=True)


def _send_revision_changed(name: str) -> None:
    layer = get_channel_layer()
    if layer is not None:
        async_to_sync(layer.group_send)(name, {"type": "revision.changed"})
