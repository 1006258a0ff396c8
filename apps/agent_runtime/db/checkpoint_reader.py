"""Reads the checkpoints of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.connection_pool import ConnectionPool

MAX_LISTED = 10_000


class CheckpointReader:
    """Reads checkpoints as lists that a frame to a graph host carries."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def get(self, thread: UUID, namespace: str, checkpoint_id: str | None) -> Any:
        """Return the checkpoint with the id, by default the newest; None if there is none."""
        if checkpoint_id is None:
            rows = await self._pool.fetch_rows(statements.NEWEST_CHECKPOINT, [thread, namespace])
        elif (parsed_id := _parse_uuid(checkpoint_id)) is not None:
            params = [thread, namespace, parsed_id]
            rows = await self._pool.fetch_rows(statements.CHECKPOINT_BY_ID, params)
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
        """Return the matching checkpoints, newest first."""
        parsed_id, before_id = _parse_uuid(checkpoint_id), _parse_uuid(before)
        if (checkpoint_id and parsed_id is None) or (before and before_id is None):
            return []
        count = MAX_LISTED if limit is None else max(0, min(limit, MAX_LISTED))
        metadata_filter = metadata.decode() if metadata else None
        params = [thread, namespace, namespace, parsed_id, parsed_id, before_id, before_id]
        rows = await self._pool.fetch_rows(
            statements.LIST_CHECKPOINTS, [*params, metadata_filter, metadata_filter, count]
        )
        return [checkpoint_to_frame(row) for row in rows]


def checkpoint_to_frame(row: Sequence[Any]) -> list[Any]:
    """Convert a row of a checkpoint query to the list that a frame carries."""
    (
        _,
        namespace,
        id_,
        parent_id,
        kind,
        blob,
        metadata,
        channels,
        versions,
        kinds,
        blobs,
        tasks,
        indexes,
        write_channels,
        write_kinds,
        write_blobs,
        paths,
    ) = row
    return [
        namespace,
        id_,
        parent_id,
        kind,
        blob,
        metadata.encode(),
        list(zip(channels or (), versions or (), kinds or (), blobs or (), strict=True)),
        list(
            zip(
                tasks or (),
                indexes or (),
                write_channels or (),
                write_kinds or (),
                write_blobs or (),
                paths or (),
                strict=True,
            )
        ),
    ]


def _parse_uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
