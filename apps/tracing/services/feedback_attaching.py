"""Feedback and its run find each other, whichever comes first."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID


def attach(workspace_id: UUID, run_ids: Collection[UUID]) -> None:
    """Give the feedback on these runs its project, trace, root flag, start time and thread."""
