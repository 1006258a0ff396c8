"""Wakes the engine when a run is due: one that was planned for later, or waits to be tried again.

Armed from the database, by every worker, so that it goes off though the one that was told is gone;
a message arms it sooner for what was planned since.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.database import TRANSIENT

if TYPE_CHECKING:
    from apps.agent_runtime.engine import Engine

logger = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 5.0
LATE_SECONDS = 2 * LOOK_AGAIN_SECONDS
"""What is due for longer has met a sweeper, or its thread has something else to do."""


class Alarm:
    """The alarm of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._rings = asyncio.Event()

    def set(self, seconds: float) -> None:
        """Go off after so long, if not before."""
        at = self._loop.time() + max(0.0, seconds)
        if self._timer is None or at < self._at:
            self._arm(at)

    def ring(self) -> None:
        """Look now: something is due that was not before."""
        self._rings.set()

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at, self._timer = at, self._loop.call_at(at, self._rings.set)

    async def serve(self) -> None:
        """Have due runs executed, for ever."""
        while True:
            self._rings.clear()
            self._arm(self._loop.time() + LOOK_AGAIN_SECONDS)
            try:
                await self._look()
            except TRANSIENT as error:
                logger.warning("Runs that are due could not be looked up: %s", str(error).strip())
            await self._rings.wait()

    async def _look(self) -> None:
        database = self._engine.database
        due = await database.rows(statements.JUST_DUE, [LATE_SECONDS])
        for thread in {row[0] for row in due}:
            self._engine.execute(thread)
        [(seconds,)] = await database.rows(statements.NEXT_DUE)
        if seconds is not None:
            self.set(seconds + 0.001)
