"""Keeps graph hosts running before the first message: of the revisions that serve and are in use.

A host needs seconds to import its graphs, which the first message after a deployment or a restart
would wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from uuid import UUID

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.connection_pool import TRANSIENT, ConnectionPool
from apps.agent_runtime.hosts.graph_host import HostFailed, HostPool
from apps.agent_runtime.hosts.launch import RevisionRef

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
USED_WITHIN_DAYS = 7
"""Deployments without a run or a deployment in this time have no warm host."""
RESTART_SECONDS = 60.0
"""Minimum time between two starts of a revision's host without a message."""


class WarmHosts:
    """Starts hosts of the most recently used deployments in the pool of one engine.

    The most recent one of each organization comes first, then the second ones.
    """

    def __init__(self, pool: ConnectionPool, hosts: HostPool, count: int) -> None:
        self._pool = pool
        self._hosts = hosts
        self._count = count
        self._started_at: dict[UUID, float] = {}
        self._starts: dict[UUID, deque[float]] = {}
        """Times of the last starts for each organization, at most `count`."""
        self._failed: set[UUID] = set()
        """Revisions whose hosts cannot start."""

    async def keep_forever(self) -> None:
        """Start missing hosts, one at a time, until cancelled."""
        while self._count:
            try:
                await self._start_missing()
            except TRANSIENT as error:
                logger.warning("Reading the serving revisions failed: %s", str(error).strip())
            await asyncio.sleep(POLL_SECONDS)

    async def _start_missing(self) -> None:
        parameters = [USED_WITHIN_DAYS, self._count]
        rows = await self._pool.fetch_rows(statements.SERVING_REVISIONS, parameters)
        revisions = [(RevisionRef(*reference), organization) for *reference, organization in rows]
        serving = {revision.revision_id for revision, _ in revisions}
        self._failed &= serving
        self._started_at = {key: at for key, at in self._started_at.items() if key in serving}
        organizations = {organization for _, organization in revisions}
        self._starts = {key: at for key, at in self._starts.items() if key in organizations}
        for revision, organization in revisions:
            await self._start(revision, organization)

    async def _start(self, revision: RevisionRef, organization: UUID) -> None:
        key, now = revision.revision_id, asyncio.get_running_loop().time()
        if key in self._failed or self._hosts.has_running(key):
            return
        if now - self._started_at.get(key, -RESTART_SECONDS) < RESTART_SECONDS:
            return
        starts = self._starts.setdefault(organization, deque(maxlen=self._count))
        if len(starts) == self._count and now - starts[0] < RESTART_SECONDS:
            return  # it deploys without end
        starts.append(now)
        self._started_at[key] = now
        try:
            await self._hosts.get(revision)
        except HostFailed as error:
            logger.info("The host of revision %s is not kept warm: %s", key, error)
            if error.is_permanent:
                self._failed.add(key)
