"""Tasks that serve the requests of a host's sessions, limited in number."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from apps.agent_runtime.hosts.graph_host import GraphHost

MAX_OPEN_REQUESTS = 500
"""Per session; with more, the host's frames are not read until some are answered."""


class RequestTasks:
    """The tasks of one session."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], host: GraphHost | None) -> None:
        """Start a task. `host` made the request and is paused if it makes too many."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if host is not None and len(self._tasks) > MAX_OPEN_REQUESTS:
            host.pause_until(self._wait_below_limit)

    async def _wait_below_limit(self) -> None:
        while len(self._tasks) > MAX_OPEN_REQUESTS:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
