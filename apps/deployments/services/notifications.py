"""Notify open pages that a revision changed; they read the change from the database."""

from __future__ import annotations

from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction


def group_name(revision_id: UUID) -> str:
    """Return the Channels group of a revision's open pages."""
    return f"revision.{revision_id}"


def notify_revision_changed(revision_id: UUID) -> None:
    """Notify open pages after commit. A lost message is harmless: pages also poll."""

    # Not a `partial`: Django logs the `__qualname__` of a robust hook that fails.
    def notify() -> None:
        _send(group_name(revision_id))

    transaction.on_commit(notify, robust=True)


def _send(name: str) -> None:
    layer = get_channel_layer()
    if layer is not None:
        async_to_sync(layer.group_send)(name, {"type": "revision.changed"})
