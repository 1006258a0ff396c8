"""A worker of one's own: takes the messages that the web process sends, ends runs on command."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import redis.asyncio
from django.utils import timezone

from apps.agent_server.messaging import messages
from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.statuses import RunStatus, ThreadStatus
from apps.agent_server.streaming.writer import StreamWriter
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread


class Worker:
    """Stands where the engine stands: after the message, before the stream."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(url)
        self.writer = StreamWriter(url)
        self._thread: UUID | None = None
        self._cancels = self._redis.pubsub(ignore_subscribe_messages=True)

    async def listen(self) -> None:
        """Hear of runs that shall stop, from now on."""
        await self._cancels.subscribe(messages.CANCELS)
        assert await self._cancels.get_message(timeout=10) is None  # the subscription itself

    async def told_to_stop(self) -> UUID:
        """The next run that shall stop."""
        message = await self._cancels.get_message(timeout=10)
        assert message is not None, "no run was told to stop"
        return UUID(bytes=message["data"])

    async def take(self) -> AgentRun:
        """Claim the first run of the thread that was named first.

        A thread whose run has ended is looked at again before, as an engine does.
        """
        ended, self._thread = self._thread, None
        run = await in_thread(_claim, ended) if ended else None
        if run is not None:
            return run
        found = await self._redis.bzpopmin(messages.RUNS, timeout=10)
        assert found is not None, "no message came"
        run = await in_thread(_claim, UUID(bytes=found[1]))
        assert run is not None, "nothing waits on the thread"
        return run

    async def say(self, run: AgentRun, *events: tuple[str, Any]) -> None:
        """Put events into the run's stream."""
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
        """End the run in PostgreSQL, and in its stream unless that is to get lost."""
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
    waiting = AgentRun.unscoped.filter(thread=thread_pk, status="pending")
    run = waiting.order_by("sequence").first()
    if run is None:
        return None
    run.status, run.attempt, run.started_at = RunStatus.RUNNING, 1, timezone.now()
    run.save()
    return run


def _end(run: AgentRun, status: str, values: Any, interrupts: Any, error: Any) -> None:
    AgentRun.unscoped.filter(pk=run.pk).update(status=status, error=error)
    failed = status in {"error", "timeout"}
    stopped = ThreadStatus.INTERRUPTED if interrupts else ThreadStatus.IDLE
    Thread.unscoped.filter(pk=run.thread_id).update(
        status=ThreadStatus.ERROR if failed else stopped,
        values=values,
        state={"values": values, "next": []},
        interrupts=interrupts or {},
        error=error,
    )
