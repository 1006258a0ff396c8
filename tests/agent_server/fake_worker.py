"""A fake worker: it claims the runs that the web process enqueues and ends them on command."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import redis.asyncio
from django.db import connection, transaction
from django.utils import timezone

from apps.agent_server.a2a.statements import ADD_PUSHES_OF_ENDED, END_TASKS
from apps.agent_server.messaging import messages
from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.statuses import RunStatus, ThreadStatus
from apps.agent_server.streaming.writer import StreamWriter
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread


class Worker:
    """Replaces the engine between the queue message and the stream of a run."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(url)
        self.writer = StreamWriter(url)
        self._thread: UUID | None = None
        self._cancels = self._redis.pubsub(ignore_subscribe_messages=True)

    async def listen(self) -> None:
        """Subscribe to cancellations."""
        await self._cancels.subscribe(messages.CANCELS)
        assert await self._cancels.get_message(timeout=60) is None  # the subscription itself

    async def next_cancelled_run(self) -> UUID:
        """Wait for the next cancellation of a run; return its run id."""
        message = await self._cancels.get_message(timeout=60)
        assert message is not None, "no run was cancelled"
        return UUID(bytes=message["data"])

    async def claim_run(self) -> AgentRun:
        """Claim the first run of the first thread in the queue.

        Like an engine, it first checks the thread of the run that it ended last.
        """
        ended, self._thread = self._thread, None
        run = await in_thread(_claim, ended) if ended else None
        while run is None:  # the first messages may be of runs that were claimed in this way
            message = await self._redis.bzpopmin(messages.RUNS, timeout=60)
            assert message is not None, "no message came"
            run = await in_thread(_claim, UUID(bytes=message[1]))
        return run

    async def publish(self, run: AgentRun, *events: tuple[str, Any]) -> None:
        """Append events to the run's stream."""
        packed = [(name, dumps(data)) for name, data in events]
        await self.writer.append(run.pk, packed, resumable=run.kwargs["resumable"])
        await self.writer.flush()

    async def end(
        self,
        run: AgentRun,
        status: str = "success",
        *,
        values: Any = None,
        interrupts: Any = None,
        error: Any = None,
        result: Any = None,
        silently: bool = False,
    ) -> None:
        """End the run in PostgreSQL and, unless `silently`, in its stream."""
        await in_thread(_end, run, status, values, interrupts, error)
        self._thread = run.thread_id
        if not silently:
            body = None if result is None else dumps(result)
            await self.writer.end(run.pk, status, result=body, resumable=run.kwargs["resumable"])
            await self.writer.flush()

    async def aclose(self) -> None:
        await asyncio.gather(self.writer.aclose(), self._cancels.aclose())
        await self._redis.aclose()


def _claim(thread_pk: UUID) -> AgentRun | None:
    pending = AgentRun.unscoped.filter(thread=thread_pk, status="pending")
    run = pending.order_by("sequence").first()
    if run is None:
        return None
    run.status, run.attempt, run.started_at = RunStatus.RUNNING, 1, timezone.now()
    run.save()
    return run


@transaction.atomic  # as the engine: a reader of the task sees the end with its output
def _end(run: AgentRun, status: str, values: Any, interrupts: Any, error: Any) -> None:
    AgentRun.unscoped.filter(pk=run.pk).update(status=status, error=error)
    is_failed = status in {"error", "timeout"}
    success_status = ThreadStatus.INTERRUPTED if interrupts else ThreadStatus.IDLE
    Thread.unscoped.filter(pk=run.thread_id).update(
        updated_at=timezone.now(),
        status=ThreadStatus.ERROR if is_failed else success_status,
        values=values,
        state={"values": values, "next": []},
        interrupts=interrupts or {},
        error=error,
    )
    with connection.cursor() as cursor:
        cursor.execute(END_TASKS, [[run.pk]])
        cursor.execute(ADD_PUSHES_OF_ENDED, [[run.pk]])
