"""Reads the checkpoints of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.connection_pool import ConnectionPool
from apps.agent_runtime.db.write_batch import checkpoint_to_frame

MAX_LISTED = 10_000


class CheckpointReader:
    """Reads checkpoints as lists that a frame to a graph host carries."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def get(self, thread: UUID, namespace: str, checkpoint_id: str | None) -> Any:
        """The checkpoint of an id, or the newest one without an id; None if it does not exist."""
        if checkpoint_id is None:
            rows = await self._pool.rows(statements.NEWEST_CHECKPOINT, [thread, namespace])
        elif (parsed_id := _uuid(checkpoint_id)) is not None:
            params = [thread, namespace, parsed_id]
            rows = await self._pool.rows(statements.CHECKPOINT_BY_ID, params)
        else:
            rows = []
        return checkpoint_to_frame(rows[0]) if rows else None

    async def list(  # noqa: PLR0917  (the order of the frame)
        self,
        thread: UUID,
        namespace: str | None,
        checkpoint_id: str | None,
        metadata: bytes | None,
        before: str | None,
        limit: int | None,
    ) -> Sequence[Any]:
        """The matching checkpoints, newest first."""
        parsed_id, before_id = _uuid(checkpoint_id), _uuid(before)
        if (checkpoint_id and parsed_id is None) or (before and before_id is None):
            return []
        count = MAX_LISTED if limit is None else max(0, min(limit, MAX_LISTED))
        metadata_filter = metadata.decode() if metadata else None
        params = [thread, namespace, namespace, parsed_id, parsed_id, before_id, before_id]
        rows = await self._pool.rows(
            statements.LIST_CHECKPOINTS, [*params, metadata_filter, metadata_filter, count]
        )
        return [checkpoint_to_frame(row) for row in rows]


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
