"""The host: handles the worker's frames and executes runs and calls until the socket closes."""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import os
import platform
import socket
import sys
from collections.abc import Callable, Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any

from . import calls, encoding, isolated_loops, wire
from .asgi_app import Application
from .auth import AuthRunner
from .event_loop import Loop
from .failure_log import error_text, log_failure
from .graphs import Graph, load_graphs
from .isolated_loops import IsolatedRun, LoopThreads
from .loop_watchdog import LoopWatchdog
from .loopback import Loopback
from .project import AgentProject, ProjectError
from .rpc import RpcClient
from .runs import RunExecution
from .saver import configure_serde
from .store import SocketStore, current_run_key
from .wire import Frame, Link

CANCEL_SECONDS = 1.0
"""Time that cancelled runs get before the host exits."""


def _exit_at_once(_: BaseException | None) -> None:
    # Another worker may already execute these runs, so nothing may run here any more.
    os._exit(0)


class Host:
    """Serves one revision's graphs over one socket."""

    def __init__(
        self,
        sock: socket.socket,
        config: Path,
        on_close: Callable[[BaseException | None], None] = _exit_at_once,
    ) -> None:
        self._config = config
        self._closed = asyncio.Event()
        self._exit = on_close
        self.link = Link(sock, self._on_frame, self._on_close, is_peer_trusted=True)
        self.rpc = RpcClient(self.link)
        self._graphs: dict[str, Graph] = {}
        self._loopback = Loopback(self.rpc)
        self._auth: AuthRunner | None = None
        self._application: Application | None = None
        self._store = SocketStore(self.rpc)
        self._runs: dict[int, tuple[RunExecution | IsolatedRun, asyncio.Task[None]]] = {}
        self._loop_threads: LoopThreads | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, Callable[[Frame], None]] = {
            "start": self._start,
            "cancel": self._cancel,
            "drain": self._drain,
            "exit": self._retire,
            "call": self._call,
            "answer": self.rpc.on_answer,
            "loop": self._loopback.on_frame,
            "web": self._custom_route,
            "more": self._custom_route,
        }

    async def serve(self) -> None:
        """Load the project, send `hello`, and wait until the socket is closed."""
        self.link.send(("hello", 0, 0, await self._hello()))
        faulthandler.cancel_dump_traceback_later()
        # Exclude imported objects from garbage collection.
        gc.collect()
        gc.freeze()
        # The import of the project, which may take seconds, has ended.
        loop = asyncio.get_running_loop()
        if isinstance(loop, Loop):
            LoopWatchdog(loop.selector, self._config.parent).start()
        await self._closed.wait()

    async def _hello(self) -> dict[str, Any]:
        hello = self._load()
        try:
            if self._application is not None:
                await self._application.start()
        except ProjectError as error:
            hello.setdefault("problem", str(error))
        return hello

    def _load(self) -> dict[str, Any]:
        hello: dict[str, Any] = {
            "protocol": wire.PROTOCOL,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "langgraph": metadata.version("langgraph"),
            "graphs": {},
            "problems": {},
        }
        try:
            project = AgentProject.read(self._config)
            project.prepare()
            if isolated_loops.is_requested():
                self._loop_threads = LoopThreads()
            self._loopback.install()
            configure_serde(project)
            self._graphs, hello["problems"] = load_graphs(project)
            hello["graphs"] = {name: graph.description for name, graph in self._graphs.items()}
            self._store = SocketStore.load(self.rpc, project)
            self._auth = AuthRunner.load(project)
            if self._auth is not None:
                hello["auth"] = {"rules": self._auth.rules}
            self._application = Application.load(project)
            if self._application is not None:
                hello["http"] = self._application.describe()
        except ProjectError as error:
            hello["problem"] = str(error)
        return hello

    def _on_frame(self, frame: Frame) -> None:
        handle = self._handlers.get(frame[0])
        if handle is not None:
            handle(frame)

    def _on_close(self, reason: BaseException | None) -> None:
        self._closed.set()
        self._exit(reason)

    def _retire(self, _: Frame) -> None:
        self._spawn(self._send_traces_and_exit())

    async def _send_traces_and_exit(self) -> None:
        """Let cancelled runs end and send what the tracing SDKs hold back, then exit."""
        tasks = [task for _, task in self._runs.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        run_trees = sys.modules.get("langsmith.run_trees")
        client = getattr(run_trees, "_CLIENT", None)
        if client is not None:
            client.flush()
        # Exporters of OpenTelemetry send their spans at the exit of the interpreter. A normal exit
        # would wait for all threads.
        atexit._run_exitfuncs()  # noqa: SLF001
        self._exit(None)

    # Runs

    def _start(self, frame: Frame) -> None:
        _, key, start = frame
        channel = self.rpc.channel(key)
        graph = self._graphs.get(start["graph_id"])
        if graph is None:
            message = f"This revision has no graph `{start['graph_id']}`."
            channel.notify(
                "done", {"status": "error", "error": {"error": "KeyError", "message": message}}
            )
            return
        if self._loop_threads is None:
            run: RunExecution | IsolatedRun = RunExecution(channel, graph, self._store, start)
        else:
            run = self._loop_threads.create_run(
                lambda: RunExecution(channel, graph, self._store, start)
            )
        task = self._spawn(run.execute())
        self._runs[key] = run, task
        task.add_done_callback(lambda _: self._on_run_done(key))

    def _on_run_done(self, key: int) -> None:
        run, _ = self._runs.pop(key)
        if not run.has_ended:  # cancelled before its first step
            self.rpc.channel(key).notify("done", {"status": "cancelled"})

    def _cancel(self, frame: Frame) -> None:
        entry = self._runs.get(frame[1])
        if entry is not None:
            entry[1].cancel()

    def _drain(self, frame: Frame) -> None:
        entry = self._runs.get(frame[1])
        if entry is not None:
            entry[0].drain()

    # Calls

    def _call(self, frame: Frame) -> None:
        _, key, graph_id, method, params = frame
        self._spawn(self._answer(key, graph_id, method, encoding.loads(params)))

    async def _answer(self, key: int, graph_id: str, method: str, params: dict[str, Any]) -> None:
        channel = self.rpc.channel(key)
        current_run_key.set(key)
        try:
            if method == "embed":
                channel.notify("result", True, encoding.dumps(await self._store.embed(params)))
                return
            if method == "auth":
                channel.notify("result", True, encoding.dumps(await self._authorize(params)))
                return
            if graph_id in self._graphs:
                graph = self._graphs[graph_id]
                value = await calls.execute(channel, graph, self._store, method, params)
            else:
                missing = ProjectError(f"This revision has no graph `{graph_id}`.")
                value = await calls.execute_without_graph(channel, method, params, missing)
            if isinstance(value, calls.EditResult):
                channel.notify("result", True, encoding.dumps(value.answer), value.thread_row)
            else:
                channel.notify("result", True, encoding.dumps(value))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the agent's own code runs here)
            if not isinstance(error, ProjectError):
                log_failure(error, f"`{method}` of graph `{graph_id}`" if graph_id else method)
            reason = {"error": type(error).__name__, "message": error_text(error)}
            channel.notify("result", False, encoding.dumps(reason))

    def _custom_route(self, frame: Frame) -> None:
        if self._application is not None:
            self._application.on_frame(self.rpc, frame)

    async def _authorize(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._auth is None:
            raise ProjectError("This revision has no custom authentication.")
        return await self._auth.execute(params)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"graph host: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
