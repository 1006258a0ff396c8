"""Enqueues the tasks of tracing by name, so that services do not import the task module."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from celery import current_app
from django.db import transaction


def remove_deleted_projects() -> None:
    """Enqueue the task after commit. A periodic task also sends it, in case the message is lost."""
    send = partial(current_app.send_task, "tracing.remove_deleted_projects")
    transaction.on_commit(send, robust=True)


def delete_traces(deletion_id: UUID) -> None:
    current_app.send_task("tracing.delete_traces", [str(deletion_id)])
