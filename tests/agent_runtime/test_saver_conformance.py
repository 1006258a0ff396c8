"""LangGraph's own suite for checkpointers, over the real socket and the real PostgreSQL."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from langgraph.checkpoint.conformance.initializer import checkpointer_test
from langgraph.checkpoint.conformance.validate import validate

from apps.agent_runtime.db.checkpoint_reader import CheckpointReader
from apps.agent_runtime.db.database import Database
from apps.agent_runtime.db.group_commit import Ledger
from apps.agent_runtime.db.write_batch import Claimed
from apps.agent_runtime.runs.run_session import RunSession
from apps.agent_server.models import AgentRun
from apps.graph_host.rpc import Desk
from apps.graph_host.saver import SocketSaver
from apps.graph_host.wire import Link
from tests.agent_runtime import deeds
from tests.agent_runtime.rows import make_revision, make_run, make_thread

THREADS = 150


@pytest.fixture
def running(transactional_db) -> list[AgentRun]:
    """Runs that this worker executes, each on a thread of its own."""
    revision = make_revision()
    return [
        make_run(make_thread(revision), "any", status="running", attempt=1) for _ in range(THREADS)
    ]


class WorkerEnd:
    """The worker's end of the socket: sessions of real runs, one for each thread asked about."""

    def __init__(self, sock: socket.socket, runs: list[AgentRun]) -> None:
        self.database = Database(2)
        self.checkpoints = CheckpointReader(self.database)
        self.stale: list[Any] = []
        self.ledger = Ledger("test", 60, on_claimed=lambda *_: None, on_stale=self.stale.append)
        self.link = Link(sock, self.take, lambda _: None)
        self._free = list(runs)
        self._sessions: dict[str, RunSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def settled(self) -> None:
        await self.ledger.settled()

    def hold_back(self, _: Any) -> None: ...

    def take(self, frame: list[Any]) -> None:
        kind, _, number, *rest = frame
        if kind == "thread":
            task = asyncio.get_running_loop().create_task(self.do(number, *rest))
            self._tasks.add(task)
        else:
            self.session(rest[0]).take(frame)

    def session(self, thread_id: str) -> RunSession:
        if thread_id not in self._sessions:
            run = self._free.pop()
            claimed = Claimed(
                run.pk,
                1,
                run.thread_id,
                UUID(thread_id),
                run.workspace_id,
                run.deployment_id,
                None,
                run.assistant_id,
                "any",
                "{}",
                "{}",
                False,
            )
            session = RunSession(self, claimed, None)
            session._host = self
            self._sessions[thread_id] = session
        return self._sessions[thread_id]

    async def do(self, number: int, what: str, ids: list[str]) -> None:
        def pk(thread_id: str) -> UUID:
            return self.session(thread_id).claimed.thread

        everything = [session.claimed.thread for session in self._sessions.values()]
        await self.settled()
        if what == "copy":
            deed = deeds.copy_thread(pk(ids[0]), pk(ids[1]))
        elif what == "delete_for_runs":
            deed = deeds.delete_for_runs(everything, [UUID(one) for one in ids])
        elif what == "prune_keep_latest":
            deed = deeds.keep_latest([pk(one) for one in ids])
        else:
            deed = deeds.delete_threads([pk(one) for one in ids])
        await self.database.perform(deed)
        self.link.send(("answer", number, True, None))

    async def close(self) -> None:
        self.link.close()
        await self.ledger.close()
        await self.database.close()


@pytest.mark.parametrize("durable", [False, True], ids=["async", "sync"])
async def test_the_saver_conforms(running, durable):
    @checkpointer_test(name="SocketSaver")
    async def over_the_socket() -> AsyncIterator[SocketSaver]:
        here, there = socket.socketpair()
        worker = WorkerEnd(there, running)
        desk = Desk(Link(here, lambda frame: desk.answer(frame), print))  # noqa: PLW0108
        yield SocketSaver(desk.door(1), None, durable=durable)
        assert worker.stale == []
        desk.link.close()
        await worker.close()
        del running[len(running) - len(worker._sessions) :]

    report = await validate(over_the_socket)

    failures = [line for result in report.results.values() for line in result.failures]
    assert failures == []
    assert report.conformance_level() == "FULL"
    assert sum(result.tests_passed for result in report.results.values()) == 81
