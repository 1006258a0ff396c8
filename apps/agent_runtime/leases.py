"""The leases of a worker's runs: renewed while the runs go on, and let go when they cannot be.

A lease says how long nobody else will claim the run. Three things can keep a worker from renewing:

- The database is down, which is proven by a refusal. Then nobody claims, and when it is back those
  who held a lease get as long again (`EXPIRED`): the runs go on, however long it takes.
- The database cannot be reached, and nothing proves that nobody can. When the lease is over the
  runs are stopped with their hosts, before somebody else begins them.
- The worker itself was held up, past its lease. What it writes is refused; it learns so here.
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

_DOWN = {"57P01", "57P02", "57P03"}  # shutting down, crashed, starting up
_REFUSALS = ("Connection refused", "No such file or directory", "starting up", "shutting down")


class Leases:
    """Keeps the leases of one engine."""

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + seconds

    @property
    def are_held(self) -> bool:
        """Whether what is claimed is surely this worker's still."""
        return self._loop.time() < self._end

    async def keep(self) -> None:
        """Renew, for ever."""
        pause = self._seconds / 4
        while True:
            asked_at = self._loop.time()
            try:
                async with asyncio.timeout(self._seconds / 2):
                    await self._renew()
            except (*TRANSIENT, TimeoutError) as error:
                if _is_down(error):
                    self._end = asked_at + self._seconds
                logger.warning("Leases could not be renewed: %s", str(error).strip() or "no answer")
                if not self.are_held:
                    self._engine.let_go("its lease could not be renewed")
                await asyncio.sleep(min(pause, 0.5))
            else:
                self._end = asked_at + self._seconds
                await asyncio.sleep(pause)

    async def _renew(self) -> None:
        engine = self._engine
        sessions = engine.sessions
        owner, seconds = engine.options.owner, self._seconds
        async with engine.database.connection() as connection:
            mine = sorted({*sessions, *engine.attempts.under_way})
            cursor = await connection.execute(statements.RENEW, [mine, owner, seconds], binary=True)
            held = {row[0]: (row[1], row[2]) for row in await cursor.fetchall()}
            ending = {*engine.attempts.under_way, *engine.ledger.writing}
            known = sorted({*mine, *engine.sessions, *ending})
            cursor = await connection.execute(
                statements.FORGOTTEN, [owner, known, seconds], binary=True
            )
            forgotten = [row[0] for row in await cursor.fetchall()]
        for run_id, session in sessions.items():
            attempt, cancel_action = held.get(run_id, (None, ""))
            if engine.sessions.get(run_id) is not session:
                continue
            if attempt != session.claimed.attempt:
                session.give_up("its lease was lost")
            elif cancel_action:
                session.cancel(cancel_action)
        for thread in forgotten:
            engine.execute(thread)


def _is_down(error: BaseException) -> bool:
    """Whether the server itself says, or its absence, that it serves nobody at this moment."""
    state = getattr(error, "sqlstate", None)
    return state in _DOWN or any(words in str(error) for words in _REFUSALS)
