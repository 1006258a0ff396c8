"""Live pages hear that a revision changed; they read what changed themselves."""

from __future__ import annotations

from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction


def group(revision_id: UUID) -> str:
    """The Channels group of a revision's readers."""
    return f"revision.{revision_id}"


def revision_changed(revision_id: UUID) -> None:
    """Tell the readers once the change is committed; one that cannot be told will look again."""

    # A function with a name: Django's log of a robust hook that fails asks for it.
    def tell() -> None:
        _send(group(revision_id))

    transaction.on_commit(tell, robust=True)


def _send(name: str) -> None:
    layer = get_channel_layer()
    if layer is not None:
        async_to_sync(layer.group_send)(name, {"type": "revision.changed"})
