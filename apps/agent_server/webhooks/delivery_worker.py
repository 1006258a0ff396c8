"""Sends the webhooks of a worker process, on an event loop in its own thread.

It is woken when a run with a webhook ends in this process, and periodically for retries and
deliveries of other workers. The concurrency per agent is limited because of slow receivers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar
from uuid import UUID

from django.db import connections

from apps.agent_server.services import deliveries
from apps.agent_server.services.deliveries import Delivery
from apps.agent_server.webhooks import sending
from apps.core.connections import close_dead

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_CONCURRENT = 200
MAX_CONCURRENT_PER_AGENT = 50
BATCH_SIZE = 25


class DeliveryWorker:
    """Claims due deliveries, sends them and records the results."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # One connection to the database, used by one statement at a time.
        self._database = ThreadPoolExecutor(1, thread_name_prefix="webhook-database")
        self._awake = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._per_agent: Counter[UUID] = Counter()
        self._thread = threading.Thread(target=self._run, name="webhook-delivery", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for due deliveries now; callable from any thread."""
        self._loop.call_soon_threadsafe(self._awake.set)

    def stop(self) -> None:
        """Stop; interrupted deliveries are retried after their lease. Safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._database.submit(connections.close_all)
            self._database.shutdown(wait=True, cancel_futures=False)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        work = self._loop.create_task(self._work())
        self._loop.run_forever()
        for task in (work, *self._open):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(work, *self._open, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _work(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            try:
                await self._take_all()
            except Exception:
                log.exception("Claiming webhooks failed; the next wake-up retries.")

    async def _take_all(self) -> None:
        """Start all due deliveries, within the limits of concurrency."""
        while capacity := min(BATCH_SIZE, MAX_CONCURRENT - len(self._open)):
            full = [agent for agent, n in self._per_agent.items() if n >= MAX_CONCURRENT_PER_AGENT]
            deliveries_claimed = await self._in_database(deliveries.claim, capacity, full)
            for delivery in deliveries_claimed:
                self._per_agent[delivery.deployment_id] += 1
                task = self._loop.create_task(self._deliver(delivery))
                self._open.add(task)
                task.add_done_callback(self._open.discard)
            if len(deliveries_claimed) < capacity:
                return

    async def _deliver(self, delivery: Delivery) -> None:
        began = self._loop.time()
        try:
            if isinstance(delivery.request, sending.DeliveryResult):
                outcome = delivery.request
            else:
                outcome = await sending.send(delivery.request)
            taken = self._loop.time() - began
            await self._in_database(deliveries.record, delivery, outcome, taken)
        except Exception:
            log.exception("Recording the result of webhook %s failed.", delivery.id)
        finally:
            was_full = len(self._open) >= MAX_CONCURRENT
            agent = delivery.deployment_id
            was_full |= self._per_agent[agent] >= MAX_CONCURRENT_PER_AGENT
            self._per_agent[agent] -= 1
            if not self._per_agent[agent]:
                del self._per_agent[agent]
            if was_full:
                self._awake.set()

    async def _in_database(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            close_dead()
            return work(*args, **kwargs)

        return await self._loop.run_in_executor(self._database, call)


_current: DeliveryWorker | None = None
_lock = threading.Lock()


def wake() -> None:
    """Send the due webhooks; the first call starts the worker."""
    global _current  # noqa: PLW0603
    with _lock:
        if _current is None:
            _current = DeliveryWorker()
        _current.wake()


def stop() -> None:
    """Stop this process's delivery worker, if it runs."""
    global _current
    with _lock:
        worker, _current = _current, None
    if worker is not None:
        worker.stop()
