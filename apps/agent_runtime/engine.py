"""The engine of a worker process: claims runs and executes them on graph hosts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import hiredis
from django.conf import settings

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.checkpoint_reader import CheckpointReader
from apps.agent_runtime.db.connection_pool import ConnectionPool
from apps.agent_runtime.db.group_commit import GroupCommitWriter
from apps.agent_runtime.db.store_operations import StoreExecutor
from apps.agent_runtime.db.write_batch import ClaimedRun, FencingToken
from apps.agent_runtime.due_timer import DueRunTimer
from apps.agent_runtime.graph_calls import custom_routes, thread_edits
from apps.agent_runtime.graph_calls.call_session import (
    CallResult,
    CallSession,
    GraphCall,
    error_body,
)
from apps.agent_runtime.hosts.frame_turns import FrameTurns
from apps.agent_runtime.hosts.graph_host import GraphHost, HostFailed, HostPool
from apps.agent_runtime.hosts.host_log import HostLogWriter
from apps.agent_runtime.hosts.host_replacement import HostReplacement
from apps.agent_runtime.hosts.isolation import IsolatedHost, IsolatedHostPool
from apps.agent_runtime.hosts.launch import Launcher, RevisionRef
from apps.agent_runtime.hosts.loopback_calls import LoadAsgiApp
from apps.agent_runtime.hosts.warm_hosts import WarmHosts
from apps.agent_runtime.leases import Leases
from apps.agent_runtime.queue_consumer import MAX_BATCH, EngineQueues
from apps.agent_runtime.run_slots import RunSlots
from apps.agent_runtime.runs.event_publisher import EventPublisher
from apps.agent_runtime.runs.pending_writes import PendingWrites
from apps.agent_runtime.runs.run_completion import RunCompletion
from apps.agent_runtime.runs.run_session import RunSession, SessionServices
from apps.agent_server import run_state_sql
from apps.agent_server.messaging import messages
from apps.agent_server.messaging.redis_connection import RedisConnection, RedisLost

logger = logging.getLogger(__name__)

READ_CONNECTIONS = 4
FILL_SECONDS = 0.25
MAX_EARLY_CANCELS = 1_000
"""Cancel requests that are kept for runs whose claim is still in progress."""


@dataclass(slots=True, frozen=True, kw_only=True)
class EngineOptions:
    """Limits of an engine; the values come from the settings."""

    owner: str
    """Name of this process in `lease_owner`."""
    max_runs: int
    organization_percent: int
    """Share of the slots that other organizations leave, for one organization."""
    deployment_percent: int
    """Share of the slots that its organization's other deployments leave, for one deployment."""
    frames_percent: int
    """Share of the loop's time for frames of hosts while several organizations send some."""
    lease_seconds: float
    max_attempts: int
    run_timeout_seconds: float
    max_hosts: int
    warm_hosts: int = 0
    """Number of deployments whose hosts are kept running."""


class Engine:
    """Executes runs on one asyncio loop. Call its methods on that loop only."""

    def __init__(
        self, options: EngineOptions, launcher: Launcher, load_asgi_app: LoadAsgiApp
    ) -> None:
        self.options = options
        self._launcher = launcher
        self._load_asgi_app = load_asgi_app
        self._sessions: dict[UUID, RunSession] = {}
        self.slots = RunSlots(
            options.max_runs,
            organization_percent=options.organization_percent,
            deployment_percent=options.deployment_percent,
        )
        self._waiting_threads: dict[UUID, None] = {}
        self._early_cancels: dict[UUID, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_draining = False
        self._is_closed = False

    async def start(self) -> None:
        """Connect and start to claim runs."""
        options = self.options
        self._loop = asyncio.get_running_loop()
        self.pool = ConnectionPool(READ_CONNECTIONS)
        self.checkpoints = CheckpointReader(self.pool)
        self.store = StoreExecutor()
        self.writer = GroupCommitWriter(
            options.owner,
            options.lease_seconds,
            on_claimed=self._on_claimed,
            on_stale=self._on_stale,
            known_runs=lambda: {*self._sessions, *self.completing},
            free_slots=self.slots.list_free,
            on_no_slot=self.slots.add_waiting,
        )
        self.redis = RedisConnection(
            settings.REDIS_URL, on_push=self._on_message, on_lost=self._on_redis_lost
        )
        self._logs = HostLogWriter(self.pool)
        self.hosts = HostPool(
            self._launcher,
            options.max_hosts,
            self._logs.add,
            self._load_asgi_app,
            self._on_unreported,
            turns=FrameTurns(options.frames_percent, self._loop.time),
        )
        self.isolated_hosts = IsolatedHostPool(self.hosts.start)
        self.timer = DueRunTimer(self.pool, self.claim_or_queue)
        self._leases = Leases(options.owner, options.lease_seconds, self.pool, self)
        self.publisher = EventPublisher(self.writer, lambda: self._leases.are_valid)
        self.completion = RunCompletion(
            self.writer,
            self.publisher,
            max_attempts=options.max_attempts,
            call_graph=self.call_graph,
            requeue=self._requeue,
        )
        self._services = SessionServices(
            writer=self.writer,
            publisher=self.publisher,
            pending_writes=PendingWrites(self._wait_written),
            checkpoints=self.checkpoints,
            store=self.store,
            completion=self.completion,
            isolated_hosts=self.isolated_hosts,
            on_closed=self._on_session_closed,
            on_stale=self._on_stale,
        )
        self._editor = thread_edits.ThreadEditor(
            self.pool, self.checkpoints, self.store, self.redis
        )
        self._custom_routes = custom_routes.CustomRoutes()
        self._spawn(self._leases.renew_forever())
        self._spawn(self.timer.run_forever())
        self._spawn(self._fill_slots_forever())
        self._spawn(self._subscribe())
        warm_hosts = WarmHosts(self.pool, self.hosts, min(options.warm_hosts, options.max_hosts))
        self._warm_hosts = self._spawn(warm_hosts.keep_forever())
        self._host_replacement = HostReplacement(
            self.pool, self.hosts, self.isolated_hosts, self, self.claim_or_queue
        )
        self._spawn(self._host_replacement.run_forever())
        self.queues = EngineQueues(
            self.redis,
            run_capacity=lambda: self.run_capacity,
            claim=self.claim_or_queue,
            call_graph=self.call_graph,
        )

    async def _wait_written(self) -> None:
        await self.publisher.wait_sent()
        await self.writer.flush()

    # Claims

    def claim_or_queue(self, thread: UUID) -> None:
        """Claim the thread's next run, or leave it to another worker if this one is stopping."""
        if self._is_draining:
            self._spawn(self._return_threads([thread]))
        elif self.run_capacity <= 0:
            self._waiting_threads[thread] = None
        else:
            self.writer.claim([thread])

    def _requeue(self, thread: UUID) -> None:
        self.claim_or_queue(thread)
        self.timer.fire()

    @property
    def run_capacity(self) -> int:
        """Number of further runs that this worker accepts."""
        return self.options.max_runs - len(self._sessions) - self.writer.claim_count

    @property
    def sessions(self) -> Mapping[UUID, RunSession]:
        """Runs that are executed here."""
        return self._sessions

    def sessions_on(self, hosts: Collection[GraphHost]) -> list[RunSession]:
        """The open runs of these hosts."""
        return [session for session in self._sessions.values() if session.host in hosts]

    @property
    def completing(self) -> Collection[UUID]:
        """Runs whose end is not committed yet."""
        return self.completion.pending

    @property
    def writing(self) -> Collection[UUID]:
        """Runs with uncommitted writes."""
        return self.writer.writing

    async def _return_threads(self, threads: Collection[UUID]) -> None:
        """Put threads back into the queue for other workers."""
        if threads:
            try:
                await self.redis.run(messages.enqueue_thread(*threads))
            except (RedisLost, hiredis.ReplyError) as error:
                logger.info("Threads are left to the sweeper: %s", error)

    def _on_claimed(self, run: ClaimedRun, head: list[Any] | None) -> None:
        earlier_attempt = self._sessions.get(run.run_id)
        if earlier_attempt is not None:
            earlier_attempt.abandon("another attempt starts here")
        if run.cancel_action or run.crash_count >= self.options.max_attempts:
            self._early_cancels.pop(run.run_id, None)
            self.completion.pending.add(run.run_id)
            self._spawn(self.completion.finish_without_start(run))
            return
        session = RunSession(self._services, run, head)
        if run.run_id not in self._sessions:
            self.slots.acquire(run.slot_owner)
        self._sessions[run.run_id] = session
        # After the last events of the thread's previous run, which the same commit has ended.
        self._loop.call_soon(self.publisher.open_stream, run)
        if run.run_id in self._early_cancels:
            del self._early_cancels[run.run_id]
            self._spawn(self.cancel_if_requested(run.run_id))
        host = None
        if run.revision_id and not run.isolation_group_size:
            host = self.hosts.get_running(run.revision_id)
        if host is not None:
            self._start_session(session, host)
        else:
            self._spawn(self._start_host_and_session(session))

    def _start_session(
        self, session: RunSession, host: GraphHost, isolated_host: IsolatedHost | None = None
    ) -> None:
        limit = host.run_seconds or self.options.run_timeout_seconds
        try:
            session.start(host, limit, isolated_host)
        except Exception as error:  # otherwise the run would keep its lease forever
            logger.exception("Run %s cannot be sent to its graph host.", session.run.run_id)
            session.fail(type(error).__name__, str(error))

    async def _start_host_and_session(self, session: RunSession) -> None:
        run = session.run
        if run.revision_id is None:
            session.fail("NotDeployed", "This deployment has no active revision.")
            return
        revision = RevisionRef(run.revision_id, run.deployment_id, run.workspace_id)
        isolated_host = None
        try:
            if run.isolation_group_size:
                isolated_host = await self.isolated_hosts.acquire(
                    revision, run.isolation_group_size
                )
                host = isolated_host.host.result()
            else:
                host = await self.hosts.get(revision)
        except HostFailed as error:
            if not session.is_over:
                session.abandon("its host did not start")
                await self.completion.retry_after_start_failure(run, error)
            return
        if not session.is_over:
            self._start_session(session, host, isolated_host)
        elif isolated_host is not None:
            self.isolated_hosts.release(isolated_host)

    def _on_session_closed(self, session: RunSession) -> None:
        """Use the freed capacity for a waiting thread."""
        if self._sessions.get(session.run.run_id) is session:
            del self._sessions[session.run.run_id]
            self.slots.release(session.run.slot_owner)
        self._claim_waiting(1)
        self.queues.notify_run_capacity()

    def _claim_waiting(self, count: int) -> None:
        """Claim up to `count` waiting threads, as far as there is capacity."""
        count = min(count, self.run_capacity)
        if self._is_draining or count <= 0:
            return
        threads = list(islice(self._waiting_threads, count))
        for thread in threads:
            del self._waiting_threads[thread]
        threads += self.slots.pop_waiting(count - len(threads))
        if threads:
            self.writer.claim(threads)

    async def _fill_slots_forever(self) -> None:
        """Use slots whose claim found no runnable run."""
        while True:
            await asyncio.sleep(FILL_SECONDS)
            self._claim_waiting(MAX_BATCH)

    def _on_stale(self, token: FencingToken) -> None:
        session = self._sessions.get(token.run_id)
        if session is not None and session.run.attempt == token.attempt:
            session.abandon("it belongs to another attempt")

    # Messages to all engines

    async def _subscribe(self) -> None:
        """Subscribe to messages; lease renewal and timer only notice the same changes later."""
        while True:
            try:
                await self.redis.connect()
                self.redis.send([("SUBSCRIBE", messages.CANCELS, messages.SCHEDULES)])
            except RedisLost:
                await asyncio.sleep(1)
            else:
                return

    def _on_redis_lost(self) -> None:
        if not self._is_closed:
            self._spawn(self._subscribe())

    def _on_message(self, channel: bytes, payload: bytes) -> None:
        if channel == messages.SCHEDULES.encode():
            self.timer.set(float(payload))
        elif channel == messages.CANCELS.encode():
            self._on_cancel(UUID(bytes=payload))

    def _on_cancel(self, run_id: UUID) -> None:
        if run_id in self._sessions:
            self._spawn(self.cancel_if_requested(run_id))
        else:
            self._early_cancels[run_id] = None
            if len(self._early_cancels) > MAX_EARLY_CANCELS:
                del self._early_cancels[next(iter(self._early_cancels))]

    async def cancel_if_requested(self, run_id: UUID) -> None:
        """Stop a run of this worker whose row has a `cancel_action` or was deleted."""
        session = self._sessions.get(run_id)
        if session is None:
            return
        rows = await self.pool.fetch_rows(statements.CANCEL_ACTION, list(session.run.token))
        if not rows:
            session.abandon("its row was deleted")
        elif rows[0][0]:
            session.cancel(rows[0][0])

    # Graph calls

    async def call_graph(self, call: GraphCall, seconds: float) -> CallResult:
        """Execute a call on the revision's host, which is started if necessary. Never raises."""
        deadline = self._loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                host = await self.hosts.get(call.revision)
            if call.method == custom_routes.METHOD:
                return await self._custom_routes.open(host, call)
            if call.thread is not None:
                await self.writer.flush()
            remaining = deadline - self._loop.time()
            if call.method in thread_edits.METHODS:
                return await self._editor.edit(host, call, remaining)
            return await CallSession(host, call, self.checkpoints, self.store).execute(remaining)
        except HostFailed as error:
            body = error_body("HostFailed", str(error), is_of_agent=error.is_permanent)
            return CallResult(False, body)
        except TimeoutError:
            return CallResult(False, error_body("TimeoutError", "The graph call timed out."))

    # Leases

    def release_all(self, reason: str) -> None:
        """Abandon all runs and kill their hosts, because other workers may start the runs now."""
        sessions = list(self._sessions.values())
        for session in sessions:
            session.abandon(reason)
        if sessions:
            for host in (*self.hosts.hosts, *self.isolated_hosts.hosts):
                host.close()

    async def reclaim(self, node: str) -> None:
        """Claim the runs of dead processes of this node. The caller holds the node's lock."""
        rows = await self.pool.fetch_rows(statements.INHERITED, [f"{node}:", self.options.owner])
        for thread in {row[0] for row in rows}:
            self.claim_or_queue(thread)
        await self.pool.fetch_rows(run_state_sql.ADD_RECENTLY_ENDED)

    def _on_unreported(self, tokens: Sequence[FencingToken]) -> None:
        self._spawn(self._add_unreported(tokens))

    async def _add_unreported(self, tokens: Sequence[FencingToken]) -> None:
        """Record runs whose host ended before it may have reported the end of their traces."""
        await self.writer.flush()
        run_ids, attempts = zip(*tokens, strict=True)
        await self.pool.fetch_rows(run_state_sql.ADD_UNREPORTED, [list(run_ids), list(attempts)])

    # Shutdown

    async def drain(self, seconds: float) -> None:
        """Stop claiming, let runs stop after their step, and return the rest after `seconds`."""
        self._is_draining = True
        self._warm_hosts.cancel()
        self.writer.accepts_claims = False
        await self.queues.stop_threads()
        await self._return_threads([*self._waiting_threads, *self.slots.pop_all_waiting()])
        for session in list(self._sessions.values()):
            session.drain()
        deadline = self._loop.time() + seconds
        while self._sessions and self._loop.time() < deadline:
            await asyncio.sleep(0.02)
        for session in list(self._sessions.values()):
            session.release()

    async def close(self) -> None:
        """Stop everything; queued writes are committed first."""
        await self.queues.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._host_replacement.close()
        await asyncio.gather(self.hosts.close(), self.isolated_hosts.close())
        # The records of hosts that did not exit on request.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.writer.close()
        self._custom_routes.close()
        await self._logs.close()
        await self.publisher.aclose()
        self._is_closed = True
        self.redis.close()
        await self.store.close()
        await self.pool.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A background task of the engine failed.", exc_info=error)
