"""Reading checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.database import Database
from apps.agent_runtime.db.write_batch import stored

MOST_LISTED = 10_000


class CheckpointReader:
    """The stored checkpoints of a thread, in the form in which they travel to graph hosts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, thread: UUID, namespace: str, checkpoint_id: str | None) -> Any:
        """One checkpoint, the newest without an id; None when there is none."""
        if checkpoint_id is None:
            rows = await self._database.rows(statements.NEWEST_CHECKPOINT, [thread, namespace])
        elif (wanted := _uuid(checkpoint_id)) is not None:
            place = [thread, namespace, wanted]
            rows = await self._database.rows(statements.CHECKPOINT_BY_ID, place)
        else:
            rows = []
        return stored(rows[0]) if rows else None

    async def list(  # noqa: PLR0917  (the order of the frame)
        self,
        thread: UUID,
        namespace: str | None,
        checkpoint_id: str | None,
        metadata: bytes | None,
        before: str | None,
        limit: int | None,
    ) -> Sequence[Any]:
        """The checkpoints that match, newest first."""
        wanted, older = _uuid(checkpoint_id), _uuid(before)
        if (checkpoint_id and wanted is None) or (before and older is None):
            return []
        count = MOST_LISTED if limit is None else max(0, min(limit, MOST_LISTED))
        filtered = metadata.decode() if metadata else None
        places = [thread, namespace, namespace, wanted, wanted, older, older]
        rows = await self._database.rows(
            statements.LIST_CHECKPOINTS, [*places, filtered, filtered, count]
        )
        return [stored(row) for row in rows]


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
