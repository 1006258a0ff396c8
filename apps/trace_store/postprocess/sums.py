"""Settling: tokens and costs of the traces that were touched."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.trace_store.postprocess import Touched
from apps.trace_store.store.sums import settle_sums


def settle(workspace_id: UUID, touched: Sequence[Touched]) -> None:
    settle_sums(workspace_id, touched)
