"""An event loop in a thread of its own that works off rows of the database when it is woken."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

from django.db import connections

from apps.core.connections import close_dead

log = logging.getLogger(__name__)

K = TypeVar("K")
P = ParamSpec("P")
T = TypeVar("T")
_STOP_SECONDS = 5


class LoopWorker(ABC):
    """Starts due work at each wake-up. Work that `stop` interrupts is due again after its lease.

    A subclass sets its own fields before it calls `__init__`, which starts the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # One connection to the database, used by one statement at a time.
        self._database = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-database")
        self._awake = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._name = name
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @abstractmethod
    async def _start_due(self) -> None:
        """Start all due work with `_start`, within the limits of concurrency."""

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        """Return further coroutines that run until the worker stops."""
        return []

    def wake(self) -> None:
        """Look for due work now; callable from any thread."""
        self._loop.call_soon_threadsafe(self._awake.set)

    def stop(self) -> None:
        """Stop, and interrupt what is open. Safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_SECONDS)
            self._database.submit(connections.close_all)
            self._database.shutdown(wait=True, cancel_futures=False)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        background = [self._loop.create_task(work) for work in (self._work(), *self._background())]
        self._loop.run_forever()
        tasks = [*background, *self._open]
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _work(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            try:
                await self._start_due()
            except Exception:
                log.exception("Claiming work of %s failed; the next wake-up retries.", self._name)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return task

    async def _in_database(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            close_dead()
            return work(*args, **kwargs)

        return await self._loop.run_in_executor(self._database, call)


def decrement(counts: Counter[K], key: K) -> None:
    """Count one less, without an entry for none."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


W = TypeVar("W", bound=LoopWorker)


class LazyLoopWorker(Generic[W]):
    """The worker of one kind in this process, started at its first use."""

    def __init__(self, create: Callable[[], W]) -> None:
        self._create = create
        self._worker: W | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Work off what is due; the first call starts the worker."""
        with self._lock:
            if self._worker is None:
                self._worker = self._create()
            self._worker.wake()

    def stop(self) -> None:
        """Stop this process's worker, if it runs."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
