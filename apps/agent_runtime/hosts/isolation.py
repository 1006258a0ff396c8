"""Hosts for runs that were there when a graph host died.

One of them may have killed it, and nobody saw which. They go on in smaller and smaller company,
each group on a host of its own, until the culprit is alone when its host dies; the others lose no
attempt to it. A run that is known to have killed its host stays alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from apps.agent_runtime.hosts.graph_host import GraphHost, HostFailed, RevisionRef

SHARES = 4
"""Into so many groups the runs of a host that died are divided."""
MOST_CELLS = 8
"""Hosts at once, in one worker; runs wait for their turn."""


def company_after(together: int) -> int:
    """In what company each of so many suspects goes on."""
    return max(1, -(-together // SHARES))


@dataclass(eq=False)
class Cell:
    """A host for a few suspects."""

    revision: RevisionRef
    company: int
    host: asyncio.Task[GraphHost]
    members: int = 0

    def takes(self, revision: RevisionRef, company: int) -> bool:
        return (
            self.revision == revision
            and self.members < min(self.company, company)
            and not (self.host.done() and not _is_up(self.host))
        )


class Quarantine:
    """The cells of one worker."""

    def __init__(self, start: Callable[[RevisionRef], Coroutine[Any, Any, GraphHost]]) -> None:
        self._start = start
        self._cells: list[Cell] = []
        self._change = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()

    async def enter(self, revision: RevisionRef, company: int) -> Cell:
        """A place in a cell whose host is up; `leave` gives it back. `HostFailed` as ever."""
        while (cell := self._find(revision, company)) is None:
            self._change.clear()
            await self._change.wait()
        cell.members += 1
        try:
            await asyncio.shield(cell.host)
        except BaseException:
            self.leave(cell)
            raise
        return cell

    def _find(self, revision: RevisionRef, company: int) -> Cell | None:
        for cell in self._cells:
            if cell.takes(revision, company):
                return cell
        if len(self._cells) >= MOST_CELLS:
            return None
        host = asyncio.create_task(self._start(revision))
        host.add_done_callback(_seen)
        cell = Cell(revision, company, host)
        self._cells.append(cell)
        return cell

    def leave(self, cell: Cell) -> None:
        """A suspect is through; the last one takes the host with it."""
        cell.members -= 1
        if not cell.members:
            self._cells.remove(cell)
            ending = asyncio.create_task(_end(cell.host))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._change.set()

    async def close(self) -> None:
        """End every host and return when they are gone."""
        await asyncio.gather(*self._ending, *[_end(cell.host) for cell in self._cells])

    @property
    def hosts(self) -> list[GraphHost]:
        return [cell.host.result() for cell in self._cells if _is_up(cell.host)]


def _is_up(host: asyncio.Task[GraphHost]) -> bool:
    return (
        host.done() and not host.cancelled() and host.exception() is None and host.result().is_alive
    )


async def _end(starting: asyncio.Task[GraphHost]) -> None:
    """Close the host, as soon as it has started, and return when it is gone."""
    with contextlib.suppress(HostFailed, asyncio.CancelledError):
        host = await asyncio.shield(starting)
        host.close()
        await host.ended()


def _seen(host: asyncio.Task[GraphHost]) -> None:
    if not host.cancelled():
        host.exception()
