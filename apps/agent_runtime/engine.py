"""The engine of a worker process: claims, hosts, leases."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from uuid import UUID

import hiredis
from django.conf import settings

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.checkpoint_reader import CheckpointReader
from apps.agent_runtime.db.database import Database
from apps.agent_runtime.db.group_commit import Ledger
from apps.agent_runtime.db.run_store import RunStore, owner_of
from apps.agent_runtime.db.write_batch import Claimed, Stale, Token
from apps.agent_runtime.due_timer import Alarm
from apps.agent_runtime.graph_calls import custom_routes
from apps.agent_runtime.graph_calls import thread_edits as edits
from apps.agent_runtime.graph_calls.call_session import CallSession, Question, Reply, failure
from apps.agent_runtime.hosts.graph_host import GraphHost, HostFailed, HostPool, RevisionRef
from apps.agent_runtime.hosts.host_log import LogKeeper
from apps.agent_runtime.hosts.isolation import Cell, Quarantine
from apps.agent_runtime.hosts.launch import Launcher
from apps.agent_runtime.leases import Leases
from apps.agent_runtime.queue_consumer import Inbox
from apps.agent_runtime.runs.event_publisher import Voice
from apps.agent_runtime.runs.run_completion import Attempts
from apps.agent_runtime.runs.run_session import RunSession
from apps.agent_server.messaging import messages
from apps.agent_server.messaging.redis_connection import RedisConnection, RedisLost

logger = logging.getLogger(__name__)

READERS = 4
MOST_HEARD = 1_000
"""Runs that shall stop and are not here: a claim that is under way may bring one."""


class Options:
    """How an engine is to work; the values come from the settings."""

    def __init__(
        self,
        *,
        owner: str,
        runs: int,
        lease_seconds: float,
        max_attempts: int,
        timeout_seconds: float,
        hosts: int,
    ) -> None:
        self.owner = owner
        self.runs = runs
        self.lease_seconds = lease_seconds
        self.max_attempts = max_attempts
        self.timeout_seconds = timeout_seconds
        self.hosts = hosts


class Engine:
    """Executes runs on one asyncio loop. All methods belong to that loop."""

    def __init__(self, options: Options, launcher: Launcher) -> None:
        self.options = options
        self._sessions: dict[UUID, RunSession] = {}
        self._waiting: dict[UUID, None] = {}
        self._heard: dict[UUID, None] = {}
        self._launcher = launcher
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining = False
        self._closed = False

    async def start(self) -> None:
        """Connect and begin to claim."""
        self._loop = asyncio.get_running_loop()
        self.database = Database(READERS)
        self.checkpoints = CheckpointReader(self.database)
        self.store = RunStore()
        self.ledger = Ledger(
            self.options.owner,
            self.options.lease_seconds,
            on_claimed=self._claimed,
            on_stale=self._stale,
            held=lambda: {*self._sessions, *self.attempts.under_way},
        )
        self.redis = RedisConnection(
            settings.REDIS_URL, on_push=self._pushed, on_lost=self._redis_lost
        )
        self._logs = LogKeeper(self.database)
        self.hosts = HostPool(self._launcher, self.options.hosts, self._logs.add)
        self.quarantine = Quarantine(self.hosts.start)
        self.attempts = Attempts(self)
        self.alarm = Alarm(self)
        self._leases = Leases(self, self.options.lease_seconds)
        self.voice = Voice(self.ledger, lambda: self._leases.are_held)
        self._spawn(self._leases.keep())
        self._spawn(self.alarm.serve())
        self._spawn(self._listen())
        self.own_routes = custom_routes.OwnRoutes()
        self.inbox = Inbox(self)

    # Work comes in

    def execute(self, thread: UUID) -> None:
        """Claim the thread's next run, unless this worker has its hands full or is leaving."""
        if self._draining:
            self._spawn(self._leave_to_others([thread]))
        elif self.room <= 0:
            self._waiting[thread] = None
        else:
            self.ledger.claim([thread])

    @property
    def room(self) -> int:
        """How many more runs this worker would take."""
        return self.options.runs - len(self._sessions) - self.ledger.claims

    async def _leave_to_others(self, threads: Collection[UUID]) -> None:
        """Name the threads again, for workers that stay."""
        if threads:
            try:
                await self.redis.run(messages.enqueue_thread(*threads))
            except (RedisLost, hiredis.ReplyError) as error:
                logger.info("Threads wait for the sweeper: %s", error)

    async def cancel_as_asked(self, run_id: UUID) -> None:
        """Stop a run that has a `cancel_action`, or that is gone, if it is here."""
        session = self._sessions.get(run_id)
        if session is None:
            return
        rows = await self.database.rows(statements.CANCEL_ACTION, list(session.claimed.token))
        if not rows:
            session.give_up("it is gone")
        elif rows[0][0]:
            session.cancel(rows[0][0])

    def _pushed(self, channel: bytes, payload: bytes) -> None:
        if channel == messages.SCHEDULES.encode():
            self.alarm.set(float(payload))
        elif channel == messages.CANCELS.encode():
            self._hear_of(UUID(bytes=payload))

    def _hear_of(self, run_id: UUID) -> None:
        """The run shall stop."""
        if run_id in self._sessions:
            self._spawn(self.cancel_as_asked(run_id))
        else:
            self._heard[run_id] = None
            if len(self._heard) > MOST_HEARD:
                del self._heard[next(iter(self._heard))]

    def _redis_lost(self) -> None:
        if not self._closed:
            self._spawn(self._listen())

    async def _listen(self) -> None:
        """Hear what all engines are told. Leases and the alarm find it out too, but later."""
        while True:
            try:
                await self.redis.connect()
                self.redis.send([("SUBSCRIBE", messages.CANCELS, messages.SCHEDULES)])
            except RedisLost:
                await asyncio.sleep(1)
            else:
                return

    @property
    def running(self) -> int:
        return len(self._sessions)

    @property
    def sessions(self) -> dict[UUID, RunSession]:
        """The runs that are executed here at this moment."""
        return dict(self._sessions)

    def _claimed(self, claimed: Claimed, head: list[Any] | None) -> None:
        before = self._sessions.get(claimed.run_id)
        if before is not None:
            before.give_up("another attempt begins here")
        if claimed.cancel_action or claimed.losses >= self.options.max_attempts:
            self._heard.pop(claimed.run_id, None)
            self.attempts.under_way.add(claimed.run_id)
            self._spawn(self.attempts.end_unbegun(claimed))
            return
        session = RunSession(self, claimed, head)
        self._sessions[claimed.run_id] = session
        self._loop.call_soon(self.voice.begin, claimed)  # after the end of the run before it
        if claimed.run_id in self._heard:
            del self._heard[claimed.run_id]
            self._spawn(self.cancel_as_asked(claimed.run_id))
        host = None
        if claimed.revision_id and not claimed.company:
            host = self.hosts.warm(claimed.revision_id)
        if host is not None:
            self._begin(session, host)
        else:
            self._spawn(self._begin_cold(session))

    def _begin(self, session: RunSession, host: GraphHost, cell: Cell | None = None) -> None:
        try:
            session.begin(host, host.run_seconds or self.options.timeout_seconds, cell)
        except Exception as error:  # a run that nobody works on would keep its lease for ever
            logger.exception("Run %s cannot be given to its graph.", session.claimed.run_id)
            session.fail(type(error).__name__, str(error))

    async def _begin_cold(self, session: RunSession) -> None:
        claimed = session.claimed
        if claimed.revision_id is None:
            session.fail("NotDeployed", "This deployment has no revision that serves.")
            return
        revision = RevisionRef(claimed.revision_id, claimed.deployment_id, claimed.workspace_id)
        cell = None
        try:
            if claimed.company:
                cell = await self.quarantine.enter(revision, claimed.company)
                host = cell.host.result()
            else:
                host = await self.hosts.get(revision)
        except HostFailed as error:
            if not session.is_over:
                session.give_up("its host did not start")
                await self.attempts.host_failed(claimed, error)
            return
        if not session.is_over:
            self._begin(session, host, cell)
        elif cell is not None:
            self.quarantine.leave(cell)

    async def ask(self, question: Question, seconds: float) -> Reply:
        """Put a question to a graph host, which is started if need be. Never raises."""
        deadline = self._loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                host = await self.hosts.get(question.revision)
            if question.method == custom_routes.METHOD:
                return await self.own_routes.open(host, question)
            if question.thread is not None:
                await self.settled()
            left = deadline - self._loop.time()
            if question.method in edits.METHODS:
                return await edits.edit(self, host, question, left)
            return await CallSession(self, host, question).ask(left)
        except HostFailed as error:
            return Reply(False, failure("HostFailed", str(error)))
        except TimeoutError:
            return Reply(False, failure("TimeoutError", "The graph did not answer in time."))

    # What sessions need

    def publish(
        self, claimed: Claimed, events: list[tuple[str, bytes]], host: GraphHost | None
    ) -> None:
        """Append events to the run's stream, while its lease is surely this worker's."""
        if not self.voice.say(claimed, events) and host:
            self._pause(host, self.voice.relieved)

    def hold_back(self, host: GraphHost | None) -> None:
        """Stop reading from a host while the database is behind."""
        if self.ledger.is_full and host is not None:
            self._pause(host, self.ledger.relieved)

    def _pause(self, host: GraphHost, relieved: Callable[[], Awaitable[None]]) -> None:
        host.link.pause()

        async def go_on() -> None:
            await relieved()
            host.link.resume()

        self._spawn(go_on())

    async def settled(self) -> None:
        """Return when everything that was put into the ledger before is committed."""
        await self.ledger.settled()

    async def use_store(
        self, claimed: Claimed, ops: Any, number: int, answer: Callable[[int, bool, Any], None]
    ) -> None:
        """Do what a run asks of its agent's store, while the attempt may write."""
        try:
            await self.store.answer(
                owner_of(claimed), ops, claimed.token, functools.partial(answer, number)
            )
        except Stale:
            self._stale(claimed.token)

    def forget(self, session: RunSession) -> None:
        """A session is over; a waiting thread may have its place."""
        if self._sessions.get(session.claimed.run_id) is session:
            del self._sessions[session.claimed.run_id]
        if self._waiting and not self._draining and self.room > 0:
            thread = next(iter(self._waiting))
            del self._waiting[thread]
            self.ledger.claim([thread])
        self.inbox.look_again()

    def _stale(self, token: Token) -> None:
        session = self._sessions.get(token.run_id)
        if session is not None and session.claimed.attempt == token.attempt:
            session.give_up("it belongs to another attempt")

    # Leases

    def let_go(self, reason: str) -> None:
        """Stop all runs with their hosts: others may begin them any moment."""
        sessions = list(self._sessions.values())
        for session in sessions:
            session.give_up(reason)
        if sessions:
            for host in (*self.hosts.hosts, *self.quarantine.hosts):
                host.close()

    async def take_over(self, node: str) -> None:
        """Take back what a dead process of this node held. The caller holds the node's lock."""
        rows = await self.database.rows(statements.INHERITED, [f"{node}:", self.options.owner])
        for thread in {row[0] for row in rows}:
            self.execute(thread)

    # The end

    async def drain(self, seconds: float) -> None:
        """Claim nothing more, let runs stop after their step, give back those that do not."""
        self._draining = True
        self.ledger.claiming = False
        await self.inbox.leave()
        await self._leave_to_others(self._waiting)
        sessions = list(self._sessions.values())
        for session in sessions:
            session.drain()
        deadline = self._loop.time() + seconds
        while self._sessions and self._loop.time() < deadline:
            await asyncio.sleep(0.02)
        for session in list(self._sessions.values()):
            session.release()

    async def close(self) -> None:
        """Stop everything; what was put in is written first."""
        await self.inbox.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.ledger.close()
        await self.hosts.close()
        self.own_routes.close()
        await self.quarantine.close()
        await self._logs.close()
        await self.voice.aclose()
        self._closed = True
        self.redis.close()
        await self.store.close()
        await self.database.close()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The engine failed at something.", exc_info=error)
