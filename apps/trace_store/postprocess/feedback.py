"""Feedback that came before its run gets what it waited for; it follows its run's thread."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.feedback.services.attach_to_runs import attach_by_key
from apps.trace_store.postprocess import Touched


def settle(workspace_id: UUID, touched: Sequence[Touched]) -> None:
    attach_by_key(workspace_id, [(one.run_id, one.project_id, one.placed_at) for one in touched])
