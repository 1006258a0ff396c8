"""Sends the webhooks and emails of a worker process, on an event loop in its own thread.

It is woken when a webhook becomes due in this process, and periodically for retries and deliveries
of other workers. The concurrency per group (an agent, a subscription) and per organization is
limited because of slow receivers and name servers.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from apps.core.loop_worker import LazyLoopWorker, LoopWorker, decrement
from apps.webhooks import delivery_request
from apps.webhooks.delivery_request import TIMEOUT_SECONDS, DeliveryResult, WebhookRequest
from apps.webhooks.email_request import EmailRequest, send_email

log = logging.getLogger(__name__)

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


class DeliveryWorker(LoopWorker):
    """Claims due deliveries, sends them and records the results."""

    def __init__(self, deliveries: DeliveryQueue) -> None:
        self._deliveries = deliveries
        self._per_group: Counter[UUID] = Counter()
        self._per_owner: Counter[UUID] = Counter()
        super().__init__("webhook-delivery")

    async def _start_due(self) -> None:
        while capacity := min(BATCH_SIZE, MAX_CONCURRENT - len(self._open)):
            full = [group for group, n in self._per_group.items() if n >= MAX_CONCURRENT_PER_GROUP]
            full += [owner for owner, n in self._per_owner.items() if n >= MAX_CONCURRENT_PER_OWNER]
            deliveries_claimed = await self._in_database(self._deliveries.claim, capacity, full)
            for delivery in deliveries_claimed:
                self._per_group[delivery.group_id] += 1
                self._per_owner[delivery.owner_id] += 1
                self._start(self._deliver(delivery))
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
            decrement(self._per_group, delivery.group_id)
            decrement(self._per_owner, delivery.owner_id)
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


def lazy_delivery_worker(deliveries: DeliveryQueue) -> LazyLoopWorker[DeliveryWorker]:
    """Return the worker of one queue in this process."""
    return LazyLoopWorker(lambda: DeliveryWorker(deliveries))
