"""Event loops of single runs: `BG_JOB_ISOLATED_LOOPS`.

By default all runs share the host's loop, which a node that blocks stalls. With the variable, each
run has a thread with a loop of its own. Clients that the author's code keeps in a module and that
belong to one loop, such as pooled HTTP connections, cannot be shared by such runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from .event_loop import Loop

if TYPE_CHECKING:
    from .runs import RunExecution

VARIABLE = "BG_JOB_ISOLATED_LOOPS"
MAX_LOOPS = 100
"""Further runs wait."""
_TRUE = frozenset(("1", "true", "t", "yes", "y", "on"))


def is_requested() -> bool:
    """Return whether the author's variables request isolated loops."""
    return os.environ.get(VARIABLE, "").strip().lower() in _TRUE


class LoopThreads:
    """The threads of a host whose runs have isolated loops."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(MAX_LOOPS, "run")

    def create_run(self, build: Callable[[], RunExecution]) -> IsolatedRun:
        return IsolatedRun(self._executor, build)


class IsolatedRun:
    """A run in a thread; it has the interface of `RunExecution`, for the host's loop."""

    def __init__(self, executor: ThreadPoolExecutor, build: Callable[[], RunExecution]) -> None:
        """`build` creates the run on its own loop."""
        self._executor = executor
        self._build = build
        self._run: RunExecution | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_cancelled = False
        self._is_drain_requested = False

    @property
    def has_ended(self) -> bool:
        return self._run is not None and self._run.has_ended

    def drain(self) -> None:
        self._is_drain_requested = True
        if self._run is not None:
            self._run.drain()

    async def execute(self) -> None:
        """Execute the run in a thread; a cancellation is passed on, and its effect awaited."""
        done = asyncio.get_running_loop().run_in_executor(self._executor, self._execute_in_thread)
        while True:
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError:
                if done.done():
                    return
                self._cancel()
            else:
                return

    def _cancel(self) -> None:
        self._is_cancelled = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            loop.call_soon_threadsafe(task.cancel)

    def _execute_in_thread(self) -> None:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(self._execute_on_loop())

    async def _execute_on_loop(self) -> None:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        run = self._run = self._build()
        if self._is_drain_requested:
            run.drain()
        if not self._is_cancelled:
            await run.execute()
