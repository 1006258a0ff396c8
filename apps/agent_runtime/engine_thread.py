"""The engine's thread in a worker process: made at the first use, drained when the process ends."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, TypeVar
from uuid import uuid4

import uvloop
from django.conf import settings

from apps.agent_runtime.engine import Engine, Options
from apps.agent_runtime.hosts.launch import Launcher, launch

logger = logging.getLogger(__name__)

T = TypeVar("T")

DRAIN_SECONDS = 5.0
"""The supervisor of `make up` grants a process eight."""


class EngineThread:
    """An engine and the loop it runs on. Everything else speaks to it through this class."""

    def __init__(self, node: str, launcher: Launcher = launch) -> None:
        self._node = node
        self._loop = uvloop.new_event_loop()
        self._lock: IO[str] | None = None
        self.engine = Engine(
            Options(
                owner=f"{node[:60]}:{uuid4().hex}",
                runs=settings.AGENT_RUNS_PER_WORKER,
                lease_seconds=settings.AGENT_RUN_LEASE_SECONDS,
                max_attempts=settings.AGENT_RUN_MAX_ATTEMPTS,
                timeout_seconds=settings.AGENT_RUN_TIMEOUT_SECONDS,
                hosts=settings.GRAPH_HOSTS_PER_WORKER,
            ),
            launcher,
        )
        self._thread = threading.Thread(target=self._run, name="agent-engine", daemon=True)
        self._thread.start()
        self.wait_for(self._begin())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _begin(self) -> None:
        await self.engine.start()
        if self._holds_its_name():
            await self.engine.take_over(self._node[:60])

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of the engine soon; from any thread."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine of the engine; from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine of the engine."""
        return self.submit(work).result()

    def stop(self, seconds: float = DRAIN_SECONDS) -> None:
        """Let go of every run, then end the hosts and the thread. Safe to repeat."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.wait_for(self.engine.drain(seconds))
            self.wait_for(self.engine.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if self._lock is not None:
            self._lock.close()

    def _holds_its_name(self) -> bool:
        """Whether this process alone bears the node's name on this machine.

        The kernel frees the lock when its holder dies, so whoever gets it knows that the runs of an
        earlier bearer are nobody's any more, and need not wait for their leases to expire.
        """
        folder = Path(settings.DATA_DIR) / "run"
        name = "".join(c if c.isalnum() or c in "-._" else "_" for c in self._node)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / f"worker-{name}.lock").open("a")
            os.set_inheritable(self._lock.fileno(), False)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


_current: EngineThread | None = None
_making = threading.Lock()


def start(node: str) -> EngineThread:
    """The engine of this process, made at the first call."""
    global _current  # noqa: PLW0603
    with _making:
        if _current is None:
            _current = EngineThread(node)
        return _current


def current() -> EngineThread | None:
    """The engine of this process, when it has one."""
    return _current


def stop() -> None:
    """End the engine of this process, when it has one."""
    global _current
    with _making:
        engine, _current = _current, None
    if engine is not None:
        engine.stop()
