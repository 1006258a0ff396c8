"""The graph hosts of a worker: one process per revision, started on first use."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from uuid import UUID

from apps.agent_runtime.hosts.launch import LaunchedHost, Launcher, RevisionRef
from apps.agent_runtime.hosts.loopback_calls import LoadAsgiApp, LoopbackCalls
from apps.graph_host import wire
from apps.graph_host.wire import Frame, Link

logger = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 60
EXIT_TIMEOUT_SECONDS = 5
FAILURE_CACHE_SECONDS = 2.0
"""Time during which a permanent start failure of a revision is reported again without a retry."""
_OUTPUT_READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 8 * 1024


class HostFailed(Exception):
    """The graph host of a revision could not be started; the message is for the agent's author.

    `is_permanent`: the revision is at fault, so a retry cannot succeed.
    """

    def __init__(self, reason: str, *, is_permanent: bool = False) -> None:
        super().__init__(reason)
        self.is_permanent = is_permanent


class HostSession(Protocol):
    """A run or a call that is executed by a host."""

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame `[kind, key, number, ...]` of this session."""

    def on_host_exit(self, reason: str) -> None:
        """Handle the exit of the host; no frame follows."""


LogSink = Callable[[RevisionRef, list[str]], None]


class GraphHost:
    """A graph host process and the socket to it."""

    def __init__(
        self,
        revision: RevisionRef,
        launched: LaunchedHost,
        log: LogSink,
        load_asgi_app: LoadAsgiApp,
    ) -> None:
        self.revision = revision
        self.hello: dict[str, Any] = {}
        self.run_seconds: float | None = getattr(launched, "run_seconds", None)
        """Time limit of a run, if the revision sets one."""
        self.sessions_at_exit = 0
        """Number of runs and calls that were open when the process exited."""
        self._process = launched.process
        self._sessions: dict[int, HostSession] = {}
        self._keys = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._log = log
        self._partial_line = b""
        self._is_output_closed = launched.process.stdout is None
        self._last_lines: deque[str] = deque(maxlen=20)
        self.link = Link(launched.socket, self._on_frame, self._on_close)
        self._loopback_calls = LoopbackCalls(self.link, revision.deployment_id, load_asgi_app)
        self._pauses: set[asyncio.Task[None]] = set()
        self._watch_output()

    @property
    def is_alive(self) -> bool:
        return not self.link.closed

    @property
    def is_idle(self) -> bool:
        return not self._sessions

    @property
    def session_count(self) -> int:
        """Number of open runs and calls."""
        return len(self._sessions)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Return when the host has loaded its graphs; raise `HostFailed` if it cannot."""
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.close()
            raise HostFailed(
                f"The agent's code took longer than {START_TIMEOUT_SECONDS} s to import."
            ) from None

    def open_session(self, session: HostSession) -> int:
        """Register a session and return the key that its frames carry."""
        key = next(self._keys)
        if self.is_alive:
            self._sessions[key] = session
        else:
            self._loop.call_soon(session.on_host_exit, self._exit_reason())
        return key

    def close_session(self, key: int) -> None:
        """Drop all further frames of the session."""
        self._sessions.pop(key, None)

    def pause_until(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Stop reading frames until `ready()` completes: backpressure to the host."""
        self.link.pause()

        async def resume() -> None:
            await ready()
            self.link.resume()

        task = self._loop.create_task(resume())
        self._pauses.add(task)
        task.add_done_callback(self._pauses.discard)

    def close(self) -> None:
        """Kill the process and notify its sessions."""
        self.link.close()
        if self._process.poll() is None:
            self._process.kill()

    async def wait_exited(self) -> None:
        """Wait for process exit and end of output, at most `EXIT_TIMEOUT_SECONDS`."""
        deadline = self._loop.time() + EXIT_TIMEOUT_SECONDS
        while self._process.poll() is None or not self._is_output_closed:
            if self._loop.time() > deadline:
                logger.error("Graph host process %s did not exit.", self._process.pid)
                return
            await asyncio.sleep(0.005)

    # Frames

    def _on_frame(self, frame: Frame) -> None:
        session = self._sessions.get(frame[1]) if len(frame) > 2 else None
        if session is not None:
            session.on_frame(frame)
        elif frame[0] == "loop":
            self._loopback_calls.on_frame(frame)
        elif frame[0] == "hello" and not self._ready.done():
            self.hello = frame[3]
            if self.hello.get("protocol") != wire.PROTOCOL:
                message = f"The graph host does not support protocol {wire.PROTOCOL}."
                self._ready.set_exception(HostFailed(message, is_permanent=True))
            elif problem := self.hello.get("problem"):
                self._ready.set_exception(HostFailed(problem, is_permanent=True))
            else:
                self._ready.set_result(None)

    def _on_close(self, error: BaseException | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        reason = self._exit_reason()
        if not self._ready.done():
            self._ready.set_exception(HostFailed(f"The agent's process ended. {reason}"))
            self._ready.exception()
        self._loopback_calls.cancel_all()
        for pause in self._pauses:
            pause.cancel()
        sessions, self._sessions = self._sessions, {}
        self.sessions_at_exit = len(sessions)
        for session in sessions.values():
            session.on_host_exit(reason)

    def _exit_reason(self) -> str:
        limit = getattr(self._process, "stopped_because", None)
        if limit:
            return f"The agent's process was stopped because {limit}."
        output = "\n".join(self._last_lines)
        return f"Its last lines were:\n{output}" if output else "It printed nothing."

    # Output

    def _watch_output(self) -> None:
        out = self._process.stdout
        if out is None:
            return
        os.set_blocking(out.fileno(), False)
        self._loop.add_reader(out.fileno(), self._read_output)

    def _read_output(self) -> None:
        out = self._process.stdout
        if out is None:
            return
        try:
            data = os.read(out.fileno(), _OUTPUT_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(out.fileno())
            out.close()
            self._is_output_closed = True
            self._log_lines([self._partial_line] if self._partial_line else [])
            self._reap()
            return
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        if len(self._partial_line) > _MAX_LINE_BYTES:
            lines.append(self._partial_line)
            self._partial_line = b""
        self._log_lines(lines)

    def _reap(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(0.2, self._reap)

    def _log_lines(self, lines: list[bytes]) -> None:
        texts = [
            line[:_MAX_LINE_BYTES].decode("utf-8", "replace").replace("\0", "") for line in lines
        ]
        texts = [text.rstrip() for text in texts if text.strip()]
        if texts:
            self._last_lines.extend(texts)
            self._log(self.revision, texts)


class HostPool:
    """The hosts of one worker process, at most `max_hosts` idle or busy ones if possible."""

    def __init__(
        self, launcher: Launcher, max_hosts: int, log: LogSink, load_asgi_app: LoadAsgiApp
    ) -> None:
        self._launcher = launcher
        self._max_hosts = max_hosts
        self._log = log
        self._load_asgi_app = load_asgi_app
        self._hosts: OrderedDict[UUID, GraphHost] = OrderedDict()
        self._starting: dict[UUID, asyncio.Task[GraphHost]] = {}
        self._failed: dict[UUID, tuple[float, HostFailed]] = {}

    def get_running(self, revision_id: UUID) -> GraphHost | None:
        """The revision's host if it is running."""
        host = self._hosts.get(revision_id)
        if host is None or not host.is_alive:
            return None
        self._hosts.move_to_end(revision_id)
        return host

    async def get(self, revision: RevisionRef) -> GraphHost:
        """The revision's host, started if necessary. Raises `HostFailed`."""
        host = self.get_running(revision.revision_id)
        if host is not None:
            return host
        failed_at, failure = self._failed.get(revision.revision_id, (0.0, None))
        now = asyncio.get_running_loop().time()
        if failure is not None and now - failed_at < FAILURE_CACHE_SECONDS:
            raise failure
        task = self._starting.get(revision.revision_id)
        if task is None:
            task = asyncio.create_task(self._start(revision))
            self._starting[revision.revision_id] = task
            task.add_done_callback(lambda _: self._starting.pop(revision.revision_id, None))
        return await asyncio.shield(task)

    async def _start(self, revision: RevisionRef) -> GraphHost:
        try:
            host = await self.start(revision)
        except HostFailed as error:
            if error.is_permanent:
                self._failed[revision.revision_id] = asyncio.get_running_loop().time(), error
            raise
        self._failed.pop(revision.revision_id, None)
        self._hosts[revision.revision_id] = host
        self._evict_idle()
        return host

    async def start(self, revision: RevisionRef) -> GraphHost:
        """Start a host outside the pool; the caller closes it. Raises `HostFailed`."""
        loop = asyncio.get_running_loop()
        try:
            launched = await loop.run_in_executor(None, self._launcher, revision.revision_id)
            host = GraphHost(revision, launched, self._log, self._load_asgi_app)
            await host.ready()
        except HostFailed:
            raise
        except Exception as error:
            logger.exception("Starting the graph host of revision %s failed.", revision.revision_id)
            raise HostFailed(f"The agent's process could not be started: {error}") from error
        return host

    def _evict_idle(self) -> None:
        """Close least recently used idle hosts above the limit; busy hosts stay."""
        for revision_id, host in list(self._hosts.items()):
            if not host.is_alive:
                del self._hosts[revision_id]
        for revision_id, host in list(self._hosts.items())[:-1]:
            if len(self._hosts) <= self._max_hosts:
                return
            if host.is_idle:
                del self._hosts[revision_id]
                host.close()

    @property
    def hosts(self) -> list[GraphHost]:
        return [host for host in self._hosts.values() if host.is_alive]

    async def close(self) -> None:
        """Kill all hosts and wait for their exit."""
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        hosts, self._hosts = list(self._hosts.values()), OrderedDict()
        for host in hosts:
            host.close()
        await asyncio.gather(*(host.wait_exited() for host in hosts))
