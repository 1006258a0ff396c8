"""Starts runs when they are due: scheduled runs, and retries after a delay.

Every worker reads the next due time from PostgreSQL, so a dead worker delays nothing. A message
sets the timer earlier for a run that was scheduled since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.connection_pool import TRANSIENT, ConnectionPool

logger = logging.getLogger(__name__)

POLL_SECONDS = 5.0
MAX_LATENESS_SECONDS = 2 * POLL_SECONDS
"""Runs that are due for longer are left to the sweeper."""


class DueRunTimer:
    """The timer of one engine."""

    def __init__(self, pool: ConnectionPool, claim: Callable[[UUID], None]) -> None:
        """`claim(thread)` is called for each thread with a due run."""
        self._pool = pool
        self._claim = claim
        self._loop = asyncio.get_running_loop()
        self._fires_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()

    def set(self, seconds: float) -> None:
        """Fire after this time at the latest."""
        fires_at = self._loop.time() + max(0.0, seconds)
        if self._timer is None or fires_at < self._fires_at:
            self._arm(fires_at)

    def fire(self) -> None:
        """Check for due runs now."""
        self._wake.set()

    def _arm(self, fires_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at, self._timer = fires_at, self._loop.call_at(fires_at, self._wake.set)

    async def run_forever(self) -> None:
        while True:
            self._wake.clear()
            self._arm(self._loop.time() + POLL_SECONDS)
            try:
                await self._claim_due()
            except TRANSIENT as error:
                logger.warning("Reading due runs failed: %s", str(error).strip())
            await self._wake.wait()

    async def _claim_due(self) -> None:
        rows = await self._pool.fetch_rows(statements.JUST_DUE, [MAX_LATENESS_SECONDS])
        for thread in {row[0] for row in rows}:
            self._claim(thread)
        [(seconds,)] = await self._pool.fetch_rows(statements.NEXT_DUE)
        if seconds is not None:
            self.set(seconds + 0.001)
