"""A worker of one's own: takes the messages that the web process sends, ends runs on command."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from uuid import UUID

import redis.asyncio
from django.utils import timezone

from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.statuses import RunStatus, ThreadStatus
from apps.agent_server.streams import StreamWriter
from apps.core.crossing import in_thread
from apps.core.json import dumps


class Worker:
    """Stands where the engine stands: after the message, before the stream."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(url)
        self.writer = StreamWriter(url)

    async def message(self) -> tuple[str, list[Any]]:
        """The next message: its task and its arguments."""
        found = await self._redis.brpop(["runs"], timeout=10)
        assert found is not None, "no message came"
        envelope = json.loads(found[1])
        arguments, _, _ = json.loads(base64.b64decode(envelope["body"]))
        return envelope["headers"]["task"], arguments

    async def take(self) -> AgentRun:
        """Claim the first run of the thread that the next message names."""
        task, [thread] = await self.message()
        assert task == "agent_server.execute_thread"
        return await in_thread(_claim, UUID(thread))

    async def say(self, run: AgentRun, *events: tuple[str, Any]) -> None:
        """Put events into the run's stream."""
        packed = [(name, dumps(data)) for name, data in events]
        await self.writer.append(run.pk, packed, resumable=run.kwargs["resumable"])
        await self.writer.flushed()

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
        if not silently:
            body = None if result is None else dumps(result)
            await self.writer.end(run.pk, status, result=body, resumable=run.kwargs["resumable"])
            await self.writer.flushed()

    async def aclose(self) -> None:
        await asyncio.gather(self.writer.aclose(), self._redis.aclose())


def _claim(thread_pk: UUID) -> AgentRun:
    run = AgentRun.unscoped.filter(thread=thread_pk, status="pending").order_by("sequence")[0]
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
