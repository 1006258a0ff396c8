"""Makes the calls of experiments in a worker process, on an event loop in its own thread.

It is woken when calls become due. Calls have leases that it extends; those of a killed process are
made again by another one. A call whose row was cancelled is stopped with the next extension.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import datetime
from typing import ParamSpec, TypeVar
from uuid import UUID

from django.db import connections
from django.utils import timezone

from apps.core.connections import close_dead
from apps.core.errors import AppError
from apps.playground.services import model_calls
from apps.playground.services.call_records import ModelCallResult
from apps.playground.services.calls import CallExecution
from apps.playground.services.model_calls import ClaimedCall

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
MAX_CONCURRENT = 100
"""An organization has at most half of the calls that the others leave."""
BATCH_SIZE = 25
EXTEND_SECONDS = 3.0


class CallWorker:
    """Claims due calls, makes them, and records their ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # One connection to the database, used by one statement at a time.
        self._database = ThreadPoolExecutor(1, thread_name_prefix="call-database")
        self._awake = asyncio.Event()
        self._tasks: dict[UUID, tuple[ClaimedCall, asyncio.Task[None]]] = {}
        self._per_organization: Counter[UUID] = Counter()
        self._thread = threading.Thread(target=self._run, name="model-calls", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for due calls now; callable from any thread."""
        self._loop.call_soon_threadsafe(self._awake.set)

    def stop(self) -> None:
        """Stop; interrupted calls are made again after their lease. Safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._database.submit(connections.close_all)
            self._database.shutdown(wait=True, cancel_futures=False)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        background = [
            self._loop.create_task(self._work()),
            self._loop.create_task(self._extend_leases()),
        ]
        self._loop.run_forever()
        tasks = [*background, *(task for _, task in self._tasks.values())]
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _work(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            try:
                await self._start_due()
            except Exception:
                log.exception("Claiming calls of models failed; the next wake-up retries.")

    async def _start_due(self) -> None:
        while free := MAX_CONCURRENT - len(self._tasks):
            # A batch may be of one organization: it takes half of what is free, too.
            capacity = min(BATCH_SIZE, (free + 1) // 2)
            full = find_full(self._per_organization)
            claimed = await self._in_database(model_calls.claim, capacity, full)
            for call in claimed:
                self._per_organization[call.organization_id] += 1
                task = self._loop.create_task(self._make(call))
                self._tasks[call.id] = call, task
            if len(claimed) < capacity:
                return

    async def _extend_leases(self) -> None:
        while True:
            await asyncio.sleep(EXTEND_SECONDS)
            attempts = {call_id: call.attempt for call_id, (call, _) in self._tasks.items()}
            if not attempts:
                continue
            try:
                held = await self._in_database(model_calls.extend, attempts)
            except Exception:
                log.exception("Extending the leases of calls failed; the next time retries.")
                continue
            for call_id, attempt in attempts.items():
                entry = self._tasks.get(call_id)
                if entry is not None and call_id not in held and entry[0].attempt == attempt:
                    entry[1].cancel()

    async def _make(self, claimed: ClaimedCall) -> None:
        try:
            await self._make_and_record(claimed)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("The call %s failed; it is made again after its lease.", claimed.id)
        finally:
            entry = self._tasks.get(claimed.id)
            if entry is not None and entry[0] is claimed:
                del self._tasks[claimed.id]
            self._per_organization[claimed.organization_id] -= 1
            if not self._per_organization[claimed.organization_id]:
                del self._per_organization[claimed.organization_id]
            self._awake.set()

    async def _make_and_record(self, claimed: ClaimedCall) -> None:
        outcome = await make_call(claimed)
        if isinstance(outcome, ModelCallResult):
            await self._in_database(model_calls.record_end, claimed, outcome)
        else:
            await self._in_database(model_calls.postpone, claimed, outcome)

    async def _in_database(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            close_dead()
            return work(*args, **kwargs)

        return await self._loop.run_in_executor(self._database, call)


def find_full(counts: Mapping[UUID, int]) -> list[UUID]:
    """The organizations that may make no further call now, so that the next one finds a place."""
    total = sum(counts.values())
    return [
        organization_id
        for organization_id, count in counts.items()
        if count >= max(1, (MAX_CONCURRENT - (total - count)) // 2)
    ]


async def make_call(claimed: ClaimedCall) -> ModelCallResult | datetime:
    """Make the call; return its end, or the time at which it is to be made again."""
    if claimed.call is None or claimed.error:
        return ModelCallResult(ended_at=timezone.now(), error=claimed.error)
    execution = CallExecution(claimed.call)
    try:
        async with aclosing(execution.run()) as events:
            async for _ in events:
                pass
    except AppError as error:
        due_at = model_calls.retry_at(claimed, error)
        return execution.result(error=error.detail) if due_at is None else due_at
    return execution.result()


class LazyCallWorker:
    """The worker of this process, started at its first use."""

    def __init__(self) -> None:
        self._worker: CallWorker | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Make the due calls; the first call starts the worker."""
        with self._lock:
            if self._worker is None:
                self._worker = CallWorker()
            self._worker.wake()

    def stop(self) -> None:
        """Stop this process's worker, if it runs."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()


call_worker = LazyCallWorker()
