"""Frames of a host whose code is malicious: they harm the host's own runs at most."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.agent_runtime.db.group_commit import GroupCommitWriter
from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_runtime.graph_calls.call_session import GraphCall
from apps.agent_runtime.hosts import request_tasks
from apps.agent_runtime.hosts.launch import RevisionRef, StartingHost
from apps.agent_runtime.hosts.request_tasks import RequestTasks
from apps.agent_server.models import AgentRun
from apps.graph_host.wire import PROTOCOL, Decoder, encode
from tests.agent_runtime.factories import execute, make_run, make_thread
from tests.installation import PATIENCE_SECONDS

MB = 1_048_576
HUGE = 10**15
"""`bytes(HUGE)` would allocate a petabyte."""
GOOD_HELLO = {"protocol": PROTOCOL, "graphs": {}}
Reply = Callable[[list[Any]], list[list[Any]]]


class ScriptedHost:
    """A graph host in a thread that answers each frame of the worker with scripted frames."""

    pid = 0
    stdout = None

    def __init__(self, reply: Reply, hello: Any = GOOD_HELLO) -> None:
        self.worker_end, self._socket = socket.socketpair()
        self._reply = reply
        self._hello = hello
        self.is_killed = False
        self._polls = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        decoder = Decoder()
        try:
            self._socket.sendall(encode(["hello", 0, 0, self._hello]))
            while data := self._socket.recv(65536):
                for frame in decoder.feed(data):
                    if frame[0] == "exit":
                        return
                    for answer in self._reply(frame):
                        self._socket.sendall(encode(answer))
        except OSError:
            pass
        finally:
            self._socket.close()

    def poll(self) -> int | None:
        """Return the status some time after `kill`, as of a real process."""
        if not self.is_killed:
            return None
        self._polls += 1
        return 0 if self._polls > 2 else None

    def kill(self) -> None:
        self.is_killed = True


@pytest.fixture
def hostile_engine(settings, transactional_db, tmp_path) -> Iterator[Callable[..., EngineThread]]:
    """Return a function that starts an engine whose hosts send scripted frames."""
    settings.DATA_DIR = tmp_path
    settings.WARM_GRAPH_HOSTS = 0
    started: list[EngineThread] = []
    processes: list[ScriptedHost] = []

    def start(reply: Reply, **host: Any) -> EngineThread:
        def launch(_: UUID) -> StartingHost:
            process = ScriptedHost(reply, **host)
            processes.append(process)
            return StartingHost(process, process.worker_end)

        started.append(EngineThread("worker@malicious", launch))
        return started[-1]

    start.processes = processes

    yield start
    for engine in started:
        engine.stop(0)


def reply_to_start(*frames: list[Any]) -> Reply:
    """Build the script of a host that sends the frames for each run; `None` is the run's key."""

    def reply(frame: list[Any]) -> list[list[Any]]:
        if frame[0] == "call":  # the state of a thread
            failure = b'{"error": "KeyError", "message": "no such thread"}'
            return [["result", frame[1], 0, False, failure]]
        if frame[0] != "start":
            return []
        return [[kind, frame[1], *fields] for kind, *fields in frames]

    return reply


@pytest.mark.parametrize(
    "frame",
    [
        ["events", 0, [["values", HUGE]]],
        ["events", 0, [["values", float("inf")]]],
        ["put", 0, "", "", str(uuid4()), None, "json", HUGE, b"{}", {}, []],
        ["writes", 0, "", "", str(uuid4()), [["t", float("inf"), "c", "k", b"", ""]]],
        ["done", 0, {"status": "drained"}],
        ["done", 0, HUGE],
    ],
)
def test_a_malformed_frame_of_a_run_is_ignored(hostile_engine, revision, listen, frame):
    end = ["done", 0, {"status": "success"}]
    engine = hostile_engine(reply_to_start(frame, end))
    run = make_run(make_thread(revision), "x")

    execute(engine, run.thread)
    events = list(listen(run.pk))

    run.refresh_from_db()
    assert (run.status, run.attempt) == ("success", 1)
    assert [name for name, _ in events] == ["metadata", "end"]


@pytest.mark.parametrize("kind", ["events", "put"])
def test_a_flood_does_not_enlarge_the_transactions_of_others(
    hostile_engine, revision, listen, monkeypatch, kind
):
    """60 MB, as fast as the engine reads, were up to 32 MB in one transaction."""
    sizes, execute_batch = [], GroupCommitWriter._execute_batch

    async def note_size(writer, connection, batch, **options):
        sizes.append(sum(entry.size for entry in batch.entries))
        await execute_batch(writer, connection, batch, **options)

    monkeypatch.setattr(GroupCommitWriter, "_execute_batch", note_size)
    thread = make_thread(revision)
    data = b'"' + b"x" * 100_000 + b'"'
    frames = {
        "events": lambda: ["events", 0, [["values", data]]],
        "put": lambda: [
            "put", 0, str(thread.thread_id), "", str(uuid4()), None, "msgpack", data, b"{}", {}, [],
        ],
    }  # fmt: skip
    flood = [frames[kind]() for _ in range(600)]
    engine = hostile_engine(reply_to_start(*flood, ["done", 0, {"status": "success"}]))
    run = make_run(thread, "x", resumable=True)

    execute(engine, run.thread)
    events = list(listen(run.pk))

    assert events[-1] == ("end", {"status": "success"})
    assert sum(sizes) > 50 * MB
    assert max(sizes) < 4 * MB


@pytest.fixture
def stopping_run(hostile_engine, revision):
    """Return a function that executes and cancels a run, whose host then sends these frames."""

    def execute_and_cancel(*frames: list[Any]) -> AgentRun:
        started = threading.Event()

        def reply(frame: list[Any]) -> list[list[Any]]:
            if frame[0] == "start":
                started.set()
                return [["events", frame[1], 0, [["values", b'"before"']]]]
            stopping = [[kind, frame[1], *fields] for kind, *fields in frames]
            return stopping if frame[0] == "cancel" else reply_to_start()(frame)

        engine = hostile_engine(reply)
        run = make_run(make_thread(revision), "x")
        execute(engine, run.thread)
        assert started.wait(PATIENCE_SECONDS)
        AgentRun.unscoped.filter(pk=run.pk).update(cancel_action="interrupt")
        engine.run(engine.engine.cancel_if_requested(run.pk))
        return run

    return execute_and_cancel


def test_a_cancelled_run_that_goes_on_streaming_keeps_a_megabyte(stopping_run, listen):
    flood = ["events", 0, [["values", b'"' + b"x" * 100_000 + b'"']]]
    last = ["events", 0, [["values", b'"last"']]]

    run = stopping_run(last, *[flood] * 100, ["done", 0, {"status": "cancelled"}])
    events = list(listen(run.pk))

    assert [data for _, data in events[1:3]] == ["before", "last"]
    assert len(events) == 1 + 2 + 10 + 1  # `metadata` and `end` besides
    assert events[-1] == ("end", {"status": "interrupted"})


@pytest.mark.parametrize(
    "outcome",
    [
        {"status": "success", "values": HUGE, "state": b"{}"},
        {"status": "success", "values": b"{}", "state": b"{}", "interrupts": HUGE},
        {"status": "success", "closing": [["values", HUGE]]},
        {"status": "success", "closing": HUGE},
        {"status": "error", "error": HUGE},
    ],
)
def test_a_run_with_a_malformed_result_fails_at_once(hostile_engine, revision, listen, outcome):
    engine = hostile_engine(reply_to_start(["done", 0, outcome]))
    run = make_run(make_thread(revision), "x")

    execute(engine, run.thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert (run.status, run.error["error"]) == ("error", "GraphHostError")
    assert not engine.engine.completing


@pytest.mark.parametrize("hello", [HUGE, [], None, {"protocol": PROTOCOL, "problem": [HUGE]}])
def test_a_host_with_a_malformed_hello_fails_its_runs_and_is_killed(
    hostile_engine, revision, listen, hello
):
    engine = hostile_engine(reply_to_start(), hello=hello)
    run = make_run(make_thread(revision), "x")

    execute(engine, run.thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert (run.status, run.error["error"]) == ("error", "HostFailed")
    assert all(process.is_killed for process in hostile_engine.processes)


@pytest.mark.parametrize(
    "result",
    [[True, HUGE], [False, HUGE], [False, b"no json"], [False, b"{}"], [True]],
)
def test_a_call_with_a_malformed_result_fails_at_once(hostile_engine, revision, result):
    engine = hostile_engine(
        lambda frame: [["result", frame[1], 0, *result]] if frame[0] == "call" else []
    )
    ref = RevisionRef(revision.pk, revision.deployment_id, revision.workspace_id)
    call = GraphCall(ref, "x", "graph", None, None, b"{}")

    answer = engine.run(engine.engine.call_graph(call, 10))

    assert not answer.succeeded
    assert json.loads(answer.body)["error"] == "GraphHostError"


async def test_a_session_with_too_many_open_requests_pauses_its_host(monkeypatch):
    monkeypatch.setattr(request_tasks, "MAX_OPEN_REQUESTS", 3)
    pauses = []

    class Host:
        def pause_until(self, ready):
            pauses.append(asyncio.ensure_future(ready()))

    async def serve():
        await answered.wait()

    answered, tasks, host = asyncio.Event(), RequestTasks(), Host()
    for _ in range(3):
        tasks.spawn(serve(), host)
    assert pauses == []

    tasks.spawn(serve(), host)
    await asyncio.sleep(0)
    assert [pause.done() for pause in pauses] == [False]

    answered.set()
    await asyncio.wait_for(pauses[0], 60)


def test_host_that_sends_a_bomb_is_killed_and_its_run_fails(hostile_engine, revision, listen):
    bomb = ["events", 0, [{}] * 1_000_000]
    engine = hostile_engine(reply_to_start(bomb))
    run = make_run(make_thread(revision), "x")

    execute(engine, run.thread)
    list(listen(run.pk))

    run.refresh_from_db()
    assert run.status == "error"
    assert "more than 262144 elements" in run.error["message"]
    assert hostile_engine.processes[0].is_killed
