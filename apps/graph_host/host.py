"""The host itself: takes frames from its worker, keeps runs and calls, and dies with its socket."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import socket
import sys
from collections.abc import Callable, Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any

from . import calls, encoding, serde, wire
from .asgi_app import Application
from .auth import Guard
from .graphs import Graph, load_graphs
from .loopback import Loopback
from .project import Project, ProjectError
from .rpc import Desk
from .runs import Run
from .store import SocketStore, speaker
from .wire import Frame, Link


def _exit_at_once(_: BaseException | None) -> None:
    # Without its worker nothing that runs here may act any more: no clean-up, no ends of threads.
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
        self._ended = asyncio.Event()
        self._on_close = on_close
        self.link = Link(sock, self._take, self._closed)
        self.desk = Desk(self.link)
        self._graphs: dict[str, Graph] = {}
        self._loopback = Loopback(self.desk)
        self._guard: Guard | None = None
        self._application: Application | None = None
        self._store = SocketStore(self.desk)
        self._runs: dict[int, tuple[Run, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kinds: dict[str, Callable[[Frame], None]] = {
            "start": self._start,
            "cancel": self._cancel,
            "drain": self._drain,
            "call": self._call,
            "answer": self.desk.answer,
            "loop": self._loopback.take,
            "web": self._serve_own,
            "more": self._serve_own,
        }

    async def serve(self) -> None:
        """Load the project, say hello, and stay until the socket ends."""
        self.link.send(("hello", 0, 0, await self._hello()))
        # What was imported stays; collections need not look at it again.
        gc.collect()
        gc.freeze()
        await self._ended.wait()

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
            project = Project.read(self._config)
            project.prepare()
            self._loopback.install()
            serde.configure(project)
            self._graphs, hello["problems"] = load_graphs(project)
            hello["graphs"] = {name: graph.description for name, graph in self._graphs.items()}
            self._store = SocketStore.of(self.desk, project)
            self._guard = Guard.of(project)
            if self._guard is not None:
                hello["auth"] = {"rules": self._guard.rules}
            self._application = Application.of(project)
            if self._application is not None:
                hello["http"] = self._application.describe()
        except ProjectError as error:
            hello["problem"] = str(error)
        return hello

    def _take(self, frame: Frame) -> None:
        handle = self._kinds.get(frame[0])
        if handle is not None:
            handle(frame)

    def _closed(self, reason: BaseException | None) -> None:
        self._ended.set()
        self._on_close(reason)

    # Runs

    def _start(self, frame: Frame) -> None:
        _, key, start = frame
        door = self.desk.door(key)
        graph = self._graphs.get(start["graph_id"])
        if graph is None:
            message = f"This revision has no graph `{start['graph_id']}`."
            door.tell(
                "done", {"status": "error", "error": {"error": "KeyError", "message": message}}
            )
            return
        run = Run(door, graph, self._store, start)
        task = self._spawn(run.execute())
        self._runs[key] = run, task
        task.add_done_callback(lambda _: self._finished(key))

    def _finished(self, key: int) -> None:
        run, _ = self._runs.pop(key)
        if not run.has_ended:  # cancelled before its first step
            self.desk.door(key).tell("done", {"status": "cancelled"})

    def _cancel(self, frame: Frame) -> None:
        found = self._runs.get(frame[1])
        if found is not None:
            found[1].cancel()

    def _drain(self, frame: Frame) -> None:
        found = self._runs.get(frame[1])
        if found is not None:
            found[0].drain()

    # Calls

    def _call(self, frame: Frame) -> None:
        _, key, graph_id, method, params = frame
        self._spawn(self._answer(key, graph_id, method, encoding.loads(params)))

    async def _answer(self, key: int, graph_id: str, method: str, params: dict[str, Any]) -> None:
        door = self.desk.door(key)
        speaker.set(key)
        try:
            if method == "embed":
                door.tell("result", True, encoding.dumps(await self._store.embed(params)))
                return
            if method == "auth":
                door.tell("result", True, encoding.dumps(await self._authorize(params)))
                return
            if graph_id not in self._graphs:
                raise ProjectError(f"This revision has no graph `{graph_id}`.")
            value = await calls.answer(door, self._graphs[graph_id], self._store, method, params)
            if isinstance(value, calls.Edited):
                door.tell("result", True, encoding.dumps(value.answer), value.left)
            else:
                door.tell("result", True, encoding.dumps(value))
        except Exception as error:  # noqa: BLE001 (the agent's own code runs here)
            reason = {"error": type(error).__name__, "message": str(error)}
            door.tell("result", False, encoding.dumps(reason))

    def _serve_own(self, frame: Frame) -> None:
        if self._application is not None:
            self._application.take(self.desk, frame)

    async def _authorize(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._guard is None:
            raise ProjectError("This revision has no authentication of its own.")
        return await self._guard.answer(params)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"graph host: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
