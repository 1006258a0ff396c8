"""Renews the leases of a worker's runs and stops the runs when the leases may have expired.

No other worker claims a run while its lease is valid. A renewal can fail for three reasons:

- PostgreSQL is down, as its error or a refused connection proves. Then no worker can claim a run,
  and leases are valid for their full length again after the restart (`EXPIRED`), so runs continue.
- PostgreSQL is unreachable for this worker only. At the end of the lease it kills its hosts, before
  another worker starts the runs.
- This worker was suspended past its lease. PostgreSQL rejects its writes, and the next renewal
  shows which runs it has lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.connection_pool import TRANSIENT, ConnectionPool
from apps.agent_runtime.runs.run_session import RunSession

logger = logging.getLogger(__name__)

_DOWN_SQLSTATES = {"57P01", "57P02", "57P03"}  # shutting down, crashed, starting up
_DOWN_MESSAGES = (
    "Connection refused",
    "No such file or directory",
    "starting up",
    "shutting down",
)


class LeasedRuns(Protocol):
    """The runs of an engine, as far as leases are concerned."""

    @property
    def sessions(self) -> Mapping[UUID, RunSession]:
        """Runs that are executed here."""

    @property
    def completing(self) -> Iterable[UUID]:
        """Runs whose end is not committed yet."""

    @property
    def writing(self) -> Iterable[UUID]:
        """Runs with uncommitted writes."""

    def claim_or_queue(self, thread: UUID) -> None: ...

    def release_all(self, reason: str) -> None: ...


class Leases:
    """Renews the leases of one engine."""

    def __init__(self, owner: str, seconds: float, pool: ConnectionPool, runs: LeasedRuns) -> None:
        self._owner = owner
        self._seconds = seconds
        self._pool = pool
        self._runs = runs
        self._loop = asyncio.get_running_loop()
        self._valid_until = self._loop.time() + seconds

    @property
    def are_valid(self) -> bool:
        """Whether no other worker can have claimed this worker's runs."""
        return self._loop.time() < self._valid_until

    async def renew_forever(self) -> None:
        interval = self._seconds / 4
        while True:
            started_at = self._loop.time()
            try:
                async with asyncio.timeout(self._seconds / 2):
                    await self._renew()
            except (*TRANSIENT, TimeoutError) as error:
                if _is_server_down(error):
                    self._valid_until = started_at + self._seconds
                logger.warning("Lease renewal failed: %s", str(error).strip() or "no answer")
                if not self.are_valid:
                    self._runs.release_all("its lease could not be renewed")
                await asyncio.sleep(min(interval, 0.5))
            else:
                self._valid_until = started_at + self._seconds
                await asyncio.sleep(interval)

    async def _renew(self) -> None:
        runs = self._runs
        sessions = dict(runs.sessions)
        async with self._pool.connection() as connection:
            leased = sorted({*sessions, *runs.completing})
            cursor = await connection.execute(
                statements.RENEW, [leased, self._owner, self._seconds], binary=True
            )
            renewed = {row[0]: (row[1], row[2]) for row in await cursor.fetchall()}
            run_ids = sorted({*leased, *runs.sessions, *runs.completing, *runs.writing})
            cursor = await connection.execute(
                statements.UNDO_FORGOTTEN_CLAIMS, [self._owner, run_ids, self._seconds], binary=True
            )
            forgotten = [row[0] for row in await cursor.fetchall()]
        for run_id, session in sessions.items():
            attempt, cancel_action = renewed.get(run_id, (None, ""))
            if runs.sessions.get(run_id) is not session:
                continue
            if attempt != session.run.attempt:
                session.abandon("its lease was lost")
            elif cancel_action:
                session.cancel(cancel_action)
        for thread in forgotten:
            runs.claim_or_queue(thread)


def _is_server_down(error: BaseException) -> bool:
    """Return whether the error proves that PostgreSQL serves no client at all."""
    sqlstate = getattr(error, "sqlstate", None)
    return sqlstate in _DOWN_SQLSTATES or any(text in str(error) for text in _DOWN_MESSAGES)
