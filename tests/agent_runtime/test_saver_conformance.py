"""LangGraph's conformance suite for checkpointers, over a real socket and PostgreSQL."""

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
from apps.agent_runtime.db.connection_pool import ConnectionPool
from apps.agent_runtime.db.group_commit import GroupCommitWriter
from apps.agent_runtime.db.write_batch import ClaimedRun
from apps.agent_runtime.runs.pending_writes import PendingWrites
from apps.agent_runtime.runs.run_session import RunSession, SessionServices
from apps.agent_server.models import AgentRun
from apps.graph_host.rpc import RpcClient
from apps.graph_host.saver import SocketSaver
from apps.graph_host.wire import Link
from tests.agent_runtime import checkpoint_maintenance
from tests.agent_runtime.factories import make_revision, make_run, make_thread

THREADS = 150


@pytest.fixture
def running(transactional_db) -> list[AgentRun]:
    """Running rows of this worker, each with its own thread."""
    revision = make_revision()
    return [
        make_run(make_thread(revision), "any", status="running", attempt=1) for _ in range(THREADS)
    ]


class WorkerEnd:
    """The worker's end of the socket, with a session of a real run for each thread."""

    def __init__(self, sock: socket.socket, runs: list[AgentRun]) -> None:
        self.pool = ConnectionPool(2)
        self.stale: list[Any] = []
        self.writer = GroupCommitWriter(
            "test", 60, on_claimed=lambda *_: None, on_stale=self.stale.append
        )
        self.link = Link(sock, self.on_frame, lambda _: None)
        self.services = SessionServices(
            writer=self.writer,
            publisher=None,
            pending_writes=PendingWrites(self.writer.flush),
            checkpoints=CheckpointReader(self.pool),
            store=None,
            completion=None,
            isolated_hosts=None,
            on_closed=lambda _: None,
            on_stale=self.stale.append,
        )
        self._free = list(runs)
        self._sessions: dict[str, RunSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on_frame(self, frame: list[Any]) -> None:
        kind, _, number, *fields = frame
        if kind == "thread":
            task = asyncio.get_running_loop().create_task(self.execute_maintenance(number, *fields))
            self._tasks.add(task)
        else:
            self.session(fields[0]).on_frame(frame)

    def session(self, thread_id: str) -> RunSession:
        if thread_id not in self._sessions:
            run_row = self._free.pop()
            run = ClaimedRun(
                run_row.pk,
                1,
                run_row.thread_id,
                UUID(thread_id),
                run_row.workspace.organization_id,
                run_row.workspace_id,
                run_row.deployment_id,
                None,
                run_row.assistant_id,
                "any",
                "{}",
                "{}",
                False,
            )
            session = RunSession(self.services, run, None)
            session._host = self
            self._sessions[thread_id] = session
        return self._sessions[thread_id]

    async def execute_maintenance(self, number: int, operation: str, ids: list[str]) -> None:
        def pk(thread_id: str) -> UUID:
            return self.session(thread_id).run.thread

        threads = [session.run.thread for session in self._sessions.values()]
        await self.writer.flush()
        if operation == "copy":
            statements = checkpoint_maintenance.copy_thread(pk(ids[0]), pk(ids[1]))
        elif operation == "delete_for_runs":
            statements = checkpoint_maintenance.delete_for_runs(
                threads, [UUID(run_id) for run_id in ids]
            )
        elif operation == "prune_keep_latest":
            statements = checkpoint_maintenance.keep_latest([pk(thread_id) for thread_id in ids])
        else:
            statements = checkpoint_maintenance.delete_threads([pk(thread_id) for thread_id in ids])
        async with self.pool.transaction() as connection:
            for statement, parameters in statements:
                await connection.execute(statement, parameters)
        self.link.send(("answer", number, True, None))

    async def close(self) -> None:
        self.link.close()
        await self.writer.close()
        await self.pool.close()


@pytest.mark.parametrize("durable", [False, True], ids=["async", "sync"])
async def test_saver_passes_the_conformance_suite(running, durable):
    @checkpointer_test(name="SocketSaver")
    async def saver() -> AsyncIterator[SocketSaver]:
        here, there = socket.socketpair()
        worker = WorkerEnd(there, running)
        rpc = RpcClient(Link(here, lambda frame: rpc.on_answer(frame), print))  # noqa: PLW0108
        yield SocketSaver(rpc.channel(1), None, durable=durable)
        assert worker.stale == []
        rpc.link.close()
        await worker.close()
        del running[len(running) - len(worker._sessions) :]

    report = await validate(saver)

    failures = [line for result in report.results.values() for line in result.failures]
    assert failures == []
    assert report.conformance_level() == "FULL"
    assert sum(result.tests_passed for result in report.results.values()) == 81
