"""Makes the calls of a queue in a worker process, on an event loop in its own thread.

`ModelCallQueue` has those of experiments. The worker is woken when calls become due. Calls have
leases that it extends; those of a killed process are made again by another one. A call whose row
was cancelled is stopped with the next extension.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from django.utils import timezone

from apps.core.errors import AppError
from apps.core.loop_worker import LazyLoopWorker, LoopWorker, decrement
from apps.playground.services import model_calls, partial_replies
from apps.playground.services.call_records import ModelCallResult
from apps.playground.services.calls import CallExecution
from apps.playground.services.model_calls import ClaimedCall

log = logging.getLogger(__name__)

MAX_CONCURRENT = 100
"""An organization has at most half of the calls that the others leave."""
BATCH_SIZE = 25
EXTEND_SECONDS = 3.0


class LeasedCall(Protocol):
    """One attempt that this process has claimed."""

    @property
    def id(self) -> UUID: ...
    @property
    def attempt(self) -> int: ...
    @property
    def organization_id(self) -> UUID: ...


class CallQueue(Protocol):
    """Durable calls with leases. Everything but `make` runs in a thread with a connection."""

    def claim(self, limit: int, excluded: Collection[UUID]) -> Sequence[LeasedCall]:
        """Lease due calls of organizations that are not excluded, and prepare their requests."""

    def extend(self, calls: Any) -> set[UUID]:
        """Extend the leases of these claimed calls; return the ids that this process holds."""

    async def make(self, claimed: Any) -> Any:
        """Make the call; return its end, or the time at which it is to be made again."""

    def record_end(self, claimed: Any, result: Any) -> object:
        """Record the end, unless the attempt lost its lease."""

    def postpone(self, claimed: Any, due_at: datetime) -> None:
        """Make the call again at this time."""


class CallWorker(LoopWorker):
    """Claims due calls, makes them, and records their ends."""

    def __init__(
        self,
        queue: CallQueue | None = None,
        name: str = "model-calls",
        max_concurrent: int = MAX_CONCURRENT,
    ) -> None:
        self._queue: CallQueue = queue or ModelCallQueue()
        self._max_concurrent = max_concurrent
        self._calls: dict[UUID, tuple[LeasedCall, asyncio.Task[None]]] = {}
        self._per_organization: Counter[UUID] = Counter()
        super().__init__(name)

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        return [self._extend_leases()]

    async def _start_due(self) -> None:
        while free := self._max_concurrent - len(self._calls):
            # A batch may be of one organization: it takes half of what is free, too.
            capacity = min(BATCH_SIZE, (free + 1) // 2)
            full = find_full(self._per_organization, self._max_concurrent)
            claimed = await self._in_database(self._queue.claim, capacity, full)
            for call in claimed:
                self._per_organization[call.organization_id] += 1
                self._calls[call.id] = call, self._start(self._make(call))
            if len(claimed) < capacity:
                return

    async def _extend_leases(self) -> None:
        while True:
            await asyncio.sleep(EXTEND_SECONDS)
            calls = [call for call, _ in self._calls.values()]
            if not calls:
                continue
            try:
                held = await self._in_database(self._queue.extend, calls)
            except Exception:
                log.exception("Extending the leases of calls failed; the next time retries.")
                continue
            for call in calls:
                entry = self._calls.get(call.id)
                if entry is not None and call.id not in held and entry[0] is call:
                    entry[1].cancel()

    async def _make(self, claimed: LeasedCall) -> None:
        try:
            await self._make_and_record(claimed)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("The call %s failed; it is made again after its lease.", claimed.id)
        finally:
            entry = self._calls.get(claimed.id)
            if entry is not None and entry[0] is claimed:
                del self._calls[claimed.id]
            decrement(self._per_organization, claimed.organization_id)
            self._awake.set()

    async def _make_and_record(self, claimed: LeasedCall) -> None:
        outcome = await self._queue.make(claimed)
        if isinstance(outcome, datetime):
            await self._in_database(self._queue.postpone, claimed, outcome)
        else:
            await self._in_database(self._queue.record_end, claimed, outcome)


def find_full(counts: Mapping[UUID, int], maximum: int = MAX_CONCURRENT) -> list[UUID]:
    """The organizations that may make no further call now, so that the next one finds a place."""
    total = sum(counts.values())
    return [
        organization_id
        for organization_id, count in counts.items()
        if count >= max(1, (maximum - (total - count)) // 2)
    ]


async def make_call(claimed: ClaimedCall) -> ModelCallResult | datetime:
    """Make the call; return its end, or the time at which it is to be made again."""
    if claimed.call is None or claimed.error:
        return ModelCallResult(ended_at=timezone.now(), error=claimed.error)
    execution = CallExecution(claimed.call)
    published_at = 0.0
    try:
        async with aclosing(execution.run()) as events:
            async for _ in events:
                if execution.seconds - published_at >= partial_replies.INTERVAL_SECONDS:
                    published_at = execution.seconds
                    text = execution.reply.text
                    await asyncio.to_thread(partial_replies.publish, claimed.id, text)
    except AppError as error:
        due_at = model_calls.retry_at(claimed.attempt, error)
        return execution.result(error=error.detail) if due_at is None else due_at
    return execution.result()


class ModelCallQueue:
    """The calls of experiments."""

    def claim(self, limit: int, excluded: Collection[UUID]) -> Sequence[ClaimedCall]:
        return model_calls.claim(limit, excluded)

    def extend(self, calls: Collection[ClaimedCall]) -> set[UUID]:
        return model_calls.extend({call.id: call.attempt for call in calls})

    async def make(self, claimed: ClaimedCall) -> ModelCallResult | datetime:
        return await make_call(claimed)

    def record_end(self, claimed: ClaimedCall, result: ModelCallResult) -> bool:
        return model_calls.record_end(claimed, result)

    def postpone(self, claimed: ClaimedCall, due_at: datetime) -> None:
        model_calls.postpone(claimed, due_at)


call_worker = LazyLoopWorker(CallWorker)
"""The worker of this process."""
