"""Consumes an engine's two Redis queues: threads with pending runs, and graph calls.

A consumer takes only as many entries as it has capacity for; the rest stays for other workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

import hiredis
from django.conf import settings

from apps.agent_runtime.graph_calls.call_session import CallResult, GraphCall
from apps.agent_runtime.hosts.launch import RevisionRef
from apps.agent_server.messaging.messages import CALLS, RUNS, CallRequest, CallResponse
from apps.agent_server.messaging.redis_connection import Command, RedisConnection, RedisLost

logger = logging.getLogger(__name__)

MAX_BATCH = 100
MAX_CONCURRENT_CALLS = 200
BLOCK_SECONDS = 5
RESPONSE_TIMEOUT_SECONDS = 15
"""A connection without a reply for this long, not even an empty one, is broken."""
RETRY_SECONDS = 1.0
CAPACITY_POLL_SECONDS = 0.1


class QueueCommands(NamedTuple):
    """Redis commands of a queue: pop the first entry, blocking, then more without blocking."""

    pop_blocking: Command
    pop_more: Command
    has_scores: bool


THREADS = QueueCommands(("BZPOPMIN", RUNS, BLOCK_SECONDS), ("ZPOPMIN", RUNS), has_scores=True)
GRAPH_CALLS = QueueCommands(("BLPOP", CALLS, BLOCK_SECONDS), ("LPOP", CALLS), has_scores=False)


class QueueConsumer:
    """Takes entries from one queue on its own Redis connection, which blocks there."""

    def __init__(
        self,
        commands: QueueCommands,
        capacity: Callable[[], int],
        handle: Callable[[list[bytes]], None],
    ) -> None:
        """`capacity()` is the number of entries that may be taken now."""
        self._commands = commands
        self._capacity = capacity
        self._handle = handle
        self._redis = RedisConnection(settings.REDIS_URL)
        self._capacity_changed = asyncio.Event()
        self._client_id = 0
        self._is_stopping = False

    def notify_capacity(self) -> None:
        """Check the capacity again."""
        self._capacity_changed.set()

    async def run(self) -> None:
        """Take entries until `stop`."""
        while not self._is_stopping:
            try:
                await self._take_batch()
            except (RedisLost, TimeoutError) as error:
                logger.warning("Reading the queue failed: %s", error or "Redis does not answer.")
                self._redis.close()
                await asyncio.sleep(RETRY_SECONDS)
            except hiredis.ReplyError as error:
                logger.warning("Redis rejected a queue command: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                logger.exception("Handling a queue entry failed.")

    async def _take_batch(self) -> None:
        more = min(self._capacity(), MAX_BATCH) - 1
        if more < 0:
            self._capacity_changed.clear()
            with contextlib.suppress(TimeoutError):
                # A claim without a runnable run frees capacity without a notification.
                await asyncio.wait_for(self._capacity_changed.wait(), CAPACITY_POLL_SECONDS)
            return
        if not self._redis.is_up:
            [self._client_id] = await self._redis.run(("CLIENT", "ID"))
        async with asyncio.timeout(RESPONSE_TIMEOUT_SECONDS):
            # Redis executes the second command as soon as the first one returns an entry.
            first, others = await self._redis.run(
                self._commands.pop_blocking, (*self._commands.pop_more, more)
            )
        entries = [] if first is None else [first[1]]
        entries += [part[0] for part in others] if self._commands.has_scores else others or []
        if entries:
            self._handle(entries)

    def stop(self) -> Command | None:
        """Stop consuming. Send the returned command on another connection to end a blocked pop."""
        self._is_stopping = True
        self._capacity_changed.set()
        return ("CLIENT", "UNBLOCK", self._client_id) if self._redis.is_up else None

    def close(self) -> None:
        self._redis.close()


class EngineQueues:
    """The consumers of one engine."""

    def __init__(
        self,
        redis: RedisConnection,
        *,
        run_capacity: Callable[[], int],
        claim: Callable[[UUID], None],
        call_graph: Callable[[GraphCall, float], Awaitable[CallResult]],
    ) -> None:
        self._redis = redis
        self._claim = claim
        self._call_graph = call_graph
        self._open_calls: set[asyncio.Task[None]] = set()
        self._threads = QueueConsumer(THREADS, run_capacity, self._claim_threads)
        self._calls = QueueConsumer(GRAPH_CALLS, self._call_capacity, self._start_calls)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._threads.run(), name="consume-threads"),
            loop.create_task(self._calls.run(), name="consume-graph-calls"),
        ]

    def notify_run_capacity(self) -> None:
        self._threads.notify_capacity()

    async def stop_threads(self) -> None:
        """Take no more threads. One that arrives meanwhile is claimed or returned by the engine."""
        unblock = self._threads.stop()
        if unblock is not None:
            try:
                await self._redis.run(unblock)
                await asyncio.wait([self._tasks[0]], timeout=1)
            except (RedisLost, hiredis.ReplyError) as error:
                logger.info("The blocked queue read ends with its connection: %s", error)

    async def close(self) -> None:
        for task in (*self._tasks, *self._open_calls):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._open_calls, return_exceptions=True)
        self._threads.close()
        self._calls.close()

    def _claim_threads(self, entries: list[bytes]) -> None:
        for entry in entries:
            self._claim(UUID(bytes=entry))

    # Graph calls

    def _call_capacity(self) -> int:
        return MAX_CONCURRENT_CALLS - len(self._open_calls)

    def _start_calls(self, entries: list[bytes]) -> None:
        for entry in entries:
            try:
                request = CallRequest.unpack(entry)
            except (ValueError, TypeError):
                logger.warning("Discarding a malformed graph call.")
                continue
            if request.is_late:
                continue
            task = asyncio.get_running_loop().create_task(self._answer(request))
            self._open_calls.add(task)
            task.add_done_callback(self._on_answered)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        self._open_calls.discard(task)
        self._calls.notify_capacity()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Answering a graph call failed.", exc_info=error)

    async def _answer(self, request: CallRequest) -> None:
        call = GraphCall(
            revision=RevisionRef(
                UUID(bytes=request.revision_id),
                UUID(bytes=request.deployment_id),
                UUID(bytes=request.workspace_id),
            ),
            graph_id=request.graph_id,
            method=request.method,
            thread=UUID(bytes=request.thread) if request.thread else None,
            thread_id=request.thread_id or None,
            params=request.params,
        )
        result = await self._call_graph(call, request.seconds)
        response = CallResponse(request.id, result.succeeded, result.body)
        await self._redis.run(*response.commands(request))
