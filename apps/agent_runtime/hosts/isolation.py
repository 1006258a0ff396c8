"""Isolated hosts for runs whose graph host crashed while it executed several runs.

It is unknown which run crashed the host. The runs are retried in groups that shrink with every
crash, each group on its own host, until the faulty run is alone on its host. The other runs
lose no attempt. A run that crashed its host while alone stays alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from apps.agent_runtime.hosts.graph_host import GraphHost, HostFailed
from apps.agent_runtime.hosts.launch import RevisionRef

GROUPS_PER_CRASH = 4
"""Number of groups into which the runs of a crashed host are divided."""
MAX_ISOLATED_HOSTS = 8
"""Per worker; further runs wait."""


def next_group_size(run_count: int) -> int:
    """Return the group size for the retry of runs that shared a crashed host."""
    return max(1, -(-run_count // GROUPS_PER_CRASH))


@dataclass(eq=False)
class IsolatedHost:
    """A host outside the pool for a group of at most `group_size` runs."""

    revision: RevisionRef
    group_size: int
    host: asyncio.Task[GraphHost]
    run_count: int = 0

    def accepts(self, revision: RevisionRef, group_size: int) -> bool:
        return (
            self.revision == revision
            and self.run_count < min(self.group_size, group_size)
            and not (self.host.done() and not _is_running(self.host))
        )


class IsolatedHostPool:
    """The isolated hosts of one worker."""

    def __init__(self, start: Callable[[RevisionRef], Coroutine[Any, Any, GraphHost]]) -> None:
        self._start = start
        self._isolated_hosts: list[IsolatedHost] = []
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()

    async def acquire(self, revision: RevisionRef, group_size: int) -> IsolatedHost:
        """Join a group whose host is running; `release` leaves it. Raises `HostFailed`."""
        while (isolated := self._find_or_start(revision, group_size)) is None:
            self._changed.clear()
            await self._changed.wait()
        isolated.run_count += 1
        try:
            await asyncio.shield(isolated.host)
        except BaseException:
            self.release(isolated)
            raise
        return isolated

    def _find_or_start(self, revision: RevisionRef, group_size: int) -> IsolatedHost | None:
        for isolated in self._isolated_hosts:
            if isolated.accepts(revision, group_size):
                return isolated
        if len(self._isolated_hosts) >= MAX_ISOLATED_HOSTS:
            return None
        host = asyncio.create_task(self._start(revision))
        host.add_done_callback(_retrieve_exception)
        isolated = IsolatedHost(revision, group_size, host)
        self._isolated_hosts.append(isolated)
        return isolated

    def release(self, isolated: IsolatedHost) -> None:
        """Leave the group; the last run closes the host."""
        isolated.run_count -= 1
        if not isolated.run_count:
            self._isolated_hosts.remove(isolated)
            closing = asyncio.create_task(_close(isolated.host))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._changed.set()

    async def close(self) -> None:
        """Stop all hosts and wait for their exit."""
        await asyncio.gather(
            *self._closing, *[_close(isolated.host) for isolated in self._isolated_hosts]
        )

    @property
    def hosts(self) -> list[GraphHost]:
        return [
            isolated.host.result()
            for isolated in self._isolated_hosts
            if _is_running(isolated.host)
        ]


def _is_running(host: asyncio.Task[GraphHost]) -> bool:
    return (
        host.done() and not host.cancelled() and host.exception() is None and host.result().is_alive
    )


async def _close(starting: asyncio.Task[GraphHost]) -> None:
    """Close the host as soon as it has started, and wait for its exit."""
    with contextlib.suppress(HostFailed, asyncio.CancelledError):
        host = await asyncio.shield(starting)
        await host.retire()


def _retrieve_exception(host: asyncio.Task[GraphHost]) -> None:
    """Prevent asyncio's warning about a start failure that no run awaits any more."""
    if not host.cancelled():
        host.exception()
