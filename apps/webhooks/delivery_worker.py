"""Sends the webhooks and emails of a worker process, on an event loop in its own thread.

It is woken when a webhook becomes due in this process, and periodically for retries and deliveries
of other workers. The concurrency per group (an agent, a subscription) and per organization is
limited because of slow receivers and name servers.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar
from uuid import UUID

from django.db import connections

from apps.core.connections import close_dead
from apps.webhooks import delivery_request
from apps.webhooks.delivery_request import TIMEOUT_SECONDS, DeliveryResult, WebhookRequest
from apps.webhooks.email_request import EmailRequest, send_email

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
OutboundRequest = WebhookRequest | EmailRequest

MAX_CONCURRENT = 200
MAX_CONCURRENT_PER_GROUP = 50
MAX_CONCURRENT_PER_OWNER = 100
BATCH_SIZE = 25
LEASE_SECONDS = TIMEOUT_SECONDS + 45
"""A delivery whose result is not recorded within the lease is due again."""
RETRY_SECONDS = (1, 5, 30, 120, 600, 1800, 7200, 18_000)
"""Delay before each retry; after the last one the delivery is given up."""


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """One attempt that this process has claimed."""

    id: UUID
    attempt: int
    """The fencing token: the result of a stale attempt is discarded."""
    group_id: UUID
    """Deliveries of a group share a limit of concurrency."""
    request: OutboundRequest | DeliveryResult
    """The request to send, or the result if nothing is to be sent."""
    organization_id: UUID | None = None
    """Shares a limit, too; without it, the group stands for it."""

    @property
    def owner_id(self) -> UUID:
        return self.organization_id or self.group_id


class DeliveryQueue(Protocol):
    """The rows of an app's deliveries; a module may implement it."""

    def claim(self, limit: int, excluded: Collection[UUID], /) -> Sequence[ClaimedDelivery]:
        """Claim due deliveries whose group and organization are not excluded."""

    def record(self, delivery: ClaimedDelivery, result: DeliveryResult, seconds: float, /) -> None:
        """Record an attempt and schedule the next one."""


def retry_delay(attempt: int, result: DeliveryResult, schedule: Sequence[float]) -> float | None:
    """The delay before the next attempt; None if there is none."""
    if result.is_final or attempt > len(schedule):
        return None
    pause = schedule[attempt - 1] * random.uniform(1.0, 1.2)  # noqa: S311  (no secret)
    return max(pause, result.retry_after)


class DeliveryWorker:
    """Claims due deliveries, sends them and records the results."""

    def __init__(self, deliveries: DeliveryQueue) -> None:
        self._deliveries = deliveries
        self._loop = asyncio.new_event_loop()
        # One connection to the database, used by one statement at a time.
        self._database = ThreadPoolExecutor(1, thread_name_prefix="webhook-database")
        self._awake = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._per_group: Counter[UUID] = Counter()
        self._per_owner: Counter[UUID] = Counter()
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
                await self._start_due()
            except Exception:
                log.exception("Claiming webhooks failed; the next wake-up retries.")

    async def _start_due(self) -> None:
        """Start all due deliveries, within the limits of concurrency."""
        while capacity := min(BATCH_SIZE, MAX_CONCURRENT - len(self._open)):
            full = [group for group, n in self._per_group.items() if n >= MAX_CONCURRENT_PER_GROUP]
            full += [owner for owner, n in self._per_owner.items() if n >= MAX_CONCURRENT_PER_OWNER]
            deliveries_claimed = await self._in_database(self._deliveries.claim, capacity, full)
            for delivery in deliveries_claimed:
                self._per_group[delivery.group_id] += 1
                self._per_owner[delivery.owner_id] += 1
                task = self._loop.create_task(self._deliver(delivery))
                self._open.add(task)
                task.add_done_callback(self._open.discard)
            if len(deliveries_claimed) < capacity:
                return

    async def _deliver(self, delivery: ClaimedDelivery) -> None:
        started_at = self._loop.time()
        try:
            if isinstance(delivery.request, DeliveryResult):
                outcome = delivery.request
            else:
                outcome = await self._send(delivery, delivery.request)
            duration = self._loop.time() - started_at
            await self._in_database(self._deliveries.record, delivery, outcome, duration)
        except Exception:
            log.exception("Recording the result of webhook %s failed.", delivery.id)
        finally:
            was_full = len(self._open) >= MAX_CONCURRENT
            was_full |= self._per_group[delivery.group_id] >= MAX_CONCURRENT_PER_GROUP
            was_full |= self._per_owner[delivery.owner_id] >= MAX_CONCURRENT_PER_OWNER
            _decrement(self._per_group, delivery.group_id)
            _decrement(self._per_owner, delivery.owner_id)
            if was_full:
                self._awake.set()

    async def _send(self, delivery: ClaimedDelivery, request: OutboundRequest) -> DeliveryResult:
        """Send; an unexpected failure is an attempt, too, so that attempts end."""
        try:
            if isinstance(request, EmailRequest):
                return await send_email(request)
            return await delivery_request.send(request, owner_id=delivery.owner_id)
        except Exception:
            log.exception("Sending webhook %s failed.", delivery.id)
            return DeliveryResult(error="The webhook could not be sent.")

    async def _in_database(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            close_dead()
            return work(*args, **kwargs)

        return await self._loop.run_in_executor(self._database, call)


def _decrement(counts: Counter[UUID], key: UUID) -> None:
    """Count one less, without an entry for none."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


class LazyDeliveryWorker:
    """The worker of one queue in this process, started at its first use."""

    def __init__(self, deliveries: DeliveryQueue) -> None:
        self._deliveries = deliveries
        self._worker: DeliveryWorker | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Send the due webhooks; the first call starts the worker."""
        with self._lock:
            if self._worker is None:
                self._worker = DeliveryWorker(self._deliveries)
            self._worker.wake()

    def stop(self) -> None:
        """Stop this process's delivery worker, if it runs."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
