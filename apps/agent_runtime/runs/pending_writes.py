"""Bounds what the runs of an organization have on its way to Redis and PostgreSQL.

All runs of a worker share its transactions and its batches of events. What one organization adds to
them must not make them so large that the next run of another one waits for seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

MAX_BYTES = 1024 * 1024
"""Above it, a host that adds more is not read until all is written. A frame may exceed it.

What was written in the meantime is not known, so an honest host waits for a batch each megabyte.
"""


@dataclass(slots=True)
class _Pending:
    size: int = 0
    write: asyncio.Task[None] | None = None


class PendingWrites:
    """The bytes of the organizations of one engine. For one event loop."""

    def __init__(self, wait_written: Callable[[], Awaitable[None]]) -> None:
        """`wait_written` returns once all that is queued when it is called is written."""
        self._wait_written = wait_written
        self._pending: dict[UUID, _Pending] = {}
        self._loop = asyncio.get_running_loop()

    def add(self, organization_id: UUID, size: int) -> bool:
        """Note queued bytes. True: the caller should pause its host until `wait` returns."""
        pending = self._pending.get(organization_id)
        if pending is None:
            pending = self._pending[organization_id] = _Pending()
        pending.size += size
        return pending.size > MAX_BYTES

    async def wait(self, organization_id: UUID) -> None:
        """Return when what the organization has queued before is written."""
        pending = self._pending.get(organization_id)
        if pending is None:
            return
        if pending.write is None:
            pending.write = self._loop.create_task(self._write(organization_id, pending))
        await asyncio.shield(pending.write)

    async def _write(self, organization_id: UUID, pending: _Pending) -> None:
        size = pending.size
        try:
            await self._wait_written()
        finally:
            pending.write = None
            pending.size -= size
            if pending.size == 0:
                self._pending.pop(organization_id, None)
