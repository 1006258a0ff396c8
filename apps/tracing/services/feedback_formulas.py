"""Scores that are computed from other scores."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

Target = tuple[UUID, UUID | None]
"""A project, and one of its runs or the project itself."""


def recompute(workspace_id: UUID, targets: Collection[Target], keys: Collection[str]) -> None:
    """Compute again, on these targets, what depends on one of these keys."""
