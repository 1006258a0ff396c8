"""Resolves host names that tenants chose, in threads of which each owner holds few.

A tenant may run the name server of its names. One that does not answer holds a thread until the
system's resolver gives up, long after the caller has. The egress proxy imports this module without
Django.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as ResolutionTimeout

from apps.core import ssrf
from apps.core.ssrf import IPAddress

MAX_THREADS = 64
MAX_THREADS_PER_OWNER = 4
_Lookup = tuple[str, "Future[list[IPAddress]]"]


class NotStarted(Exception):
    """No thread was free within the timeout, so that nothing is known about the name."""


class Resolver:
    """Threads that resolve names; further names of an owner wait for a thread of that owner."""

    def __init__(
        self, threads: int = MAX_THREADS, threads_per_owner: int = MAX_THREADS_PER_OWNER
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="resolver")
        self._threads_per_owner = threads_per_owner
        self._lock = threading.Lock()
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[_Lookup]] = {}

    def resolve(self, host: str, seconds: float, owner: Hashable) -> list[IPAddress]:
        """Resolve in the calling thread. Raises `ResolutionFailed` or `NotStarted`."""
        future = self._submit(host, owner)
        try:
            return future.result(seconds)
        except ResolutionTimeout:
            raise (NotStarted if future.cancel() else ssrf.ResolutionFailed(host)) from None

    async def resolve_async(self, host: str, seconds: float, owner: Hashable) -> list[IPAddress]:
        """Resolve without blocking the loop. Raises `ResolutionFailed`."""
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(self._submit(host, owner))
        except TimeoutError:
            raise ssrf.ResolutionFailed(host) from None

    def _submit(self, host: str, owner: Hashable) -> Future[list[IPAddress]]:
        future: Future[list[IPAddress]] = Future()
        with self._lock:
            if self._held[owner] >= self._threads_per_owner:
                self._waiting.setdefault(owner, deque()).append((host, future))
                return future
            self._held[owner] += 1
        self._pool.submit(self._work, owner, host, future)
        return future

    def _work(self, owner: Hashable, host: str, future: Future[list[IPAddress]]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(ssrf.resolve(host))
            except Exception as error:  # noqa: BLE001 (the caller gets it)
                future.set_exception(error)
        if (following := self._take_waiting(owner)) is not None:
            # Behind the names of other owners that wait for a thread.
            self._pool.submit(self._work, owner, *following)

    def _take_waiting(self, owner: Hashable) -> _Lookup | None:
        """Return a name of the owner whose caller still waits; without one, free the thread."""
        with self._lock:
            waiting = self._waiting.get(owner, ())
            while waiting:
                host, future = waiting.popleft()
                if not future.cancelled():
                    return host, future
            self._waiting.pop(owner, None)
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
            return None
