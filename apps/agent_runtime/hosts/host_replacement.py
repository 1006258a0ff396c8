"""Ends the graph hosts of stopped, restarted and deleted deployments.

The rows decide, so each worker ends its hosts within `POLL_SECONDS`, without a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.connection_pool import TRANSIENT, ConnectionPool
from apps.agent_runtime.hosts.graph_host import GraphHost, HostPool
from apps.agent_runtime.hosts.isolation import IsolatedHostPool
from apps.agent_runtime.runs.run_session import RunSession

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
GRACE_SECONDS = 5.0
"""Time that runs get to finish their current step, as at the end of a worker."""


class Runs(Protocol):
    """The part of the engine that replacement uses."""

    def sessions_on(self, hosts: Collection[GraphHost]) -> list[RunSession]:
        """Return the open runs of these hosts."""


class HostReplacement:
    """Replaces the outdated hosts of one engine."""

    def __init__(
        self,
        pool: ConnectionPool,
        hosts: HostPool,
        isolated_hosts: IsolatedHostPool,
        runs: Runs,
        claim: Callable[[UUID], None],
    ) -> None:
        """`claim` takes the primary key of a thread whose run was returned to the queue."""
        self._pool = pool
        self._hosts = hosts
        self._isolated_hosts = isolated_hosts
        self._runs = runs
        self._claim = claim
        self._replacing: dict[GraphHost, asyncio.Task[None]] = {}

    async def run_forever(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                await self._replace_outdated()
            except TRANSIENT as error:
                logger.warning("Reading the generations of hosts failed: %s", str(error).strip())
            await asyncio.sleep(POLL_SECONDS)

    async def _replace_outdated(self) -> None:
        hosts = [*self._hosts.hosts, *self._isolated_hosts.hosts]
        hosts = [host for host in hosts if host not in self._replacing]
        if not hosts:
            return
        revision_ids = sorted({host.revision.revision_id for host in hosts})
        rows = await self._pool.fetch_rows(statements.HOST_GENERATIONS, [revision_ids])
        generations: dict[UUID, int] = dict(rows)
        for host in hosts:
            if generations.get(host.revision.revision_id) != host.generation:
                task = asyncio.get_running_loop().create_task(self._replace(host))
                self._replacing[host] = task
                task.add_done_callback(partial(self._on_replaced, host))

    def _on_replaced(self, host: GraphHost, task: asyncio.Task[None]) -> None:
        self._replacing.pop(host, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Replacing a graph host failed.", exc_info=error)

    async def _replace(self, host: GraphHost) -> None:
        """Let the host's runs stop after their step, return the rest, and end the process."""
        self._hosts.remove(host)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GRACE_SECONDS
        returned = self._runs.sessions_on([host])
        for session in returned:
            session.drain()
        while self._runs.sessions_on([host]) and loop.time() < deadline:
            await asyncio.sleep(0.02)
        for session in self._runs.sessions_on([host]):
            session.release()
        await host.retire()
        for session in returned:
            self._claim(session.run.thread)

    async def close(self) -> None:
        """Wait for the exit of the hosts that are being replaced."""
        replacing = dict(self._replacing)
        for task in replacing.values():
            task.cancel()
        await asyncio.gather(*replacing.values(), return_exceptions=True)
        await asyncio.gather(*(host.retire() for host in replacing))
