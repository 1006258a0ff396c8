"""The engine's thread in a worker process: started on first use, drained at shutdown."""

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
from django.utils.module_loading import import_string

from apps.agent_runtime.engine import Engine, EngineOptions
from apps.agent_runtime.hosts.launch import Launcher, launch

logger = logging.getLogger(__name__)

T = TypeVar("T")

DRAIN_SECONDS = 5.0
"""The supervisor of `make up` kills a process after 8 seconds."""
WAIT_SECONDS = 120.0
"""Longest wait for the engine's loop; starting, draining and closing take seconds."""


class EngineThread:
    """An engine with its loop and thread; other threads access the engine through this class."""

    def __init__(self, node: str, launcher: Launcher = launch) -> None:
        self._node = node
        self._loop = uvloop.new_event_loop()
        self._lock: IO[str] | None = None
        self.engine = Engine(
            EngineOptions(
                owner=f"{node[:60]}:{uuid4().hex}",
                max_runs=settings.AGENT_RUNS_PER_WORKER,
                organization_percent=settings.AGENT_RUNS_ORGANIZATION_PERCENT,
                deployment_percent=settings.AGENT_RUNS_DEPLOYMENT_PERCENT,
                frames_percent=settings.AGENT_FRAMES_PERCENT,
                lease_seconds=settings.AGENT_RUN_LEASE_SECONDS,
                max_attempts=settings.AGENT_RUN_MAX_ATTEMPTS,
                run_timeout_seconds=settings.AGENT_RUN_TIMEOUT_SECONDS,
                max_hosts=settings.GRAPH_HOSTS_PER_WORKER,
                warm_hosts=settings.WARM_GRAPH_HOSTS,
            ),
            launcher,
            _load_asgi_app,
        )
        self._thread = threading.Thread(target=self._run, name="agent-engine", daemon=True)
        self._thread.start()
        self.run(self._start_engine())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _start_engine(self) -> None:
        await self.engine.start()
        if self._lock_node_name():
            await self.engine.reclaim(self._node[:60])

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Schedule a call on the engine's loop, from any thread."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine's loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop and block until it returns.

        Raises `TimeoutError` and cancels the coroutine after `WAIT_SECONDS`.
        """
        future = self.submit(work)
        try:
            return future.result(WAIT_SECONDS)
        except TimeoutError:
            future.cancel()
            raise

    def stop(self, seconds: float = DRAIN_SECONDS) -> None:
        """Return all runs to the queue, then stop hosts and thread. Idempotent."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.run(self.engine.drain(seconds))
            self.run(self.engine.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if self._lock is not None:
            self._lock.close()

    def _lock_node_name(self) -> bool:
        """Lock the node name on this machine; False if another process holds it.

        The kernel releases the lock when its holder dies. The new holder can reclaim the runs of
        the dead process at once, before their leases expire.
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


def _load_asgi_app() -> Any:
    return import_string(settings.ASGI_APPLICATION)


_current: EngineThread | None = None
_start_lock = threading.Lock()


def start(node: str) -> EngineThread:
    """Return the engine of this process; the first call starts it."""
    global _current  # noqa: PLW0603
    with _start_lock:
        if _current is None:
            _current = EngineThread(node)
        return _current


def current() -> EngineThread | None:
    """Return the engine of this process, if it has one."""
    return _current


def stop() -> None:
    """Stop the engine of this process, if it has one."""
    global _current
    with _start_lock:
        engine, _current = _current, None
    if engine is not None:
        engine.stop()
