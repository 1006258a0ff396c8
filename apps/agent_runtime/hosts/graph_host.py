"""The graph hosts of a worker: one process per revision, started on first use."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings

from apps.agent_runtime.db.write_batch import FencingToken
from apps.agent_runtime.hosts.frame_turns import FrameTurns
from apps.agent_runtime.hosts.launch import Launcher, RevisionRef, StartingHost
from apps.agent_runtime.hosts.log_levels import LineLevels
from apps.agent_runtime.hosts.loopback_calls import LoadAsgiApp, LoopbackCalls
from apps.agent_server.run_state_sql import TRACE_DELAY_SECONDS
from apps.graph_host import wire
from apps.graph_host.wire import Frame, Link

logger = logging.getLogger(__name__)

EXIT_TIMEOUT_SECONDS = 5
MAX_UNSENT_BYTES = 512 * 1024 * 1024
"""A host that leaves more unread is killed, because it would fill the worker's memory."""
RETIRE_SECONDS = 2.0
"""Time that a host gets to send its traces before its exit."""
MAX_ENDED_RUNS = 1_000
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


LogSink = Callable[[RevisionRef, list[tuple[str, str]]], None]
"""Takes lines of output, each with its level."""
UnreportedSink = Callable[[Sequence[FencingToken]], None]
"""Takes the runs whose traces a host may not have sent completely before its process ended."""


class GraphHost:
    """A graph host process and the socket to it."""

    def __init__(
        self,
        revision: RevisionRef,
        launched: StartingHost,
        log: LogSink,
        load_asgi_app: LoadAsgiApp,
        on_unreported: UnreportedSink,
        *,
        turns: FrameTurns,
    ) -> None:
        self.revision = revision
        self._organization_id: UUID = launched.organization_id or revision.workspace_id
        self._turns = turns
        self.hello: dict[str, Any] = {}
        self.run_seconds: float | None = getattr(launched, "run_seconds", None)
        """Time limit of a run, if the revision sets one."""
        self.generation: int = getattr(launched, "generation", 0)
        """The deployment's `host_generation` at the start."""
        self.sessions_at_exit = 0
        """Number of runs and calls that were open when the process exited."""
        self._ended_runs: deque[tuple[float, FencingToken]] = deque(maxlen=MAX_ENDED_RUNS)
        self._is_retired = False
        self._process = launched.process
        self._sessions: dict[int, HostSession] = {}
        self._keys = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._log = log
        self._on_unreported = on_unreported
        self._closed = asyncio.Event()
        self._violation: str | None = None
        """The malformed frame or protocol error because of which the link was closed."""
        self._partial_line = b""
        self._is_output_closed = launched.process.stdout is None
        self._last_lines: deque[str] = deque(maxlen=20)
        self._levels = LineLevels()
        self.link = Link(
            launched.socket,
            self._on_frame,
            self._on_close,
            MAX_UNSENT_BYTES,
            on_handled=self._take_turns,
        )
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
            async with asyncio.timeout(settings.GRAPH_IMPORT_TIMEOUT_SECONDS):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.close()
            raise HostFailed(
                "The agent's code took longer than"
                f" {settings.GRAPH_IMPORT_TIMEOUT_SECONDS} s to import."
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

    def note_ended_run(self, token: FencingToken) -> None:
        """Remember a run whose trace may not be sent completely yet."""
        self._ended_runs.append((self._loop.time(), token))

    @property
    def unreported_runs(self) -> list[FencingToken]:
        """Runs that ended so shortly before the process that their traces may be incomplete."""
        if self._is_retired:
            return []
        since = self._loop.time() - TRACE_DELAY_SECONDS
        return [token for ended_at, token in self._ended_runs if ended_at > since]

    def pause_until(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Stop reading frames until `ready()` completes: backpressure to the host."""
        self.link.pause()
        task = self._loop.create_task(_wait(ready))
        self._pauses.add(task)
        task.add_done_callback(self._on_pause_over)

    def _on_pause_over(self, pause: asyncio.Task[None]) -> None:
        self._pauses.discard(pause)
        if not self._pauses:
            self.link.resume()

    def _take_turns(self, size: int, seconds: float) -> None:
        """Leave the loop to other organizations if this host's one is ahead of them."""
        pause = self._turns.charge(self._organization_id, size, seconds)
        if pause and self.is_alive:
            self.pause_until(partial(asyncio.sleep, pause))

    def close(self) -> None:
        """Kill the process and notify its sessions."""
        self.link.close()
        if self._process.poll() is None:
            self._process.kill()

    async def retire(self) -> None:
        """Let the idle process send its traces and exit; kill it after `RETIRE_SECONDS`."""
        if self.is_alive:
            self._is_retired = True
            self.link.send(("exit", 0))
            try:
                async with asyncio.timeout(RETIRE_SECONDS):
                    await self._closed.wait()
            except TimeoutError:
                self._is_retired = False
        self.close()
        await self.wait_exited()

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
        try:
            session = self._sessions.get(frame[1]) if len(frame) > 2 else None
            if session is not None:
                session.on_frame(frame)
            elif frame[0] == "loop":
                self._loopback_calls.on_frame(frame)
            elif frame[0] == "hello" and not self._ready.done():
                self._on_hello(frame[3])
        except wire.MALFORMED as error:
            # The host runs untrusted code. The sessions check the frames of its runs.
            logger.warning("Graph host %s sent a malformed frame: %s", self.pid, error)
            self.close()

    def _on_hello(self, hello: dict[str, Any]) -> None:
        protocol, problem = hello.get("protocol"), hello.get("problem")
        self.hello = hello
        if protocol != wire.PROTOCOL:
            message = f"The graph host does not support protocol {wire.PROTOCOL}."
            self._ready.set_exception(HostFailed(message, is_permanent=True))
        elif problem:
            self._ready.set_exception(HostFailed(str(problem), is_permanent=True))
        else:
            self._ready.set_result(None)

    def _on_close(self, error: BaseException | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        if isinstance(error, wire.MALFORMED):
            logger.warning("Graph host %s is killed: %s", self.pid, error)
            self._violation = f"it sent an invalid message to the platform ({error})"
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
        if unreported := self.unreported_runs:
            self._on_unreported(unreported)
        self._closed.set()

    def _exit_reason(self) -> str:
        limit = getattr(self._process, "stopped_because", None) or self._violation
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
            entries = [self._levels.split(text) for text in texts]
            self._last_lines.extend(text for _, text in entries)
            self._log(self.revision, entries)


async def _wait(ready: Callable[[], Awaitable[None]]) -> None:
    await ready()


class HostPool:
    """The hosts of one worker process, at most `max_hosts` idle or busy ones if possible."""

    def __init__(
        self,
        launcher: Launcher,
        max_hosts: int,
        log: LogSink,
        load_asgi_app: LoadAsgiApp,
        on_unreported: UnreportedSink,
        *,
        turns: FrameTurns,
    ) -> None:
        self._launcher = launcher
        self._turns = turns
        self._max_hosts = max_hosts
        self._log = log
        self._load_asgi_app = load_asgi_app
        self._on_unreported = on_unreported
        self._retiring: set[asyncio.Task[None]] = set()
        self._hosts: OrderedDict[UUID, GraphHost] = OrderedDict()
        self._starting: dict[UUID, asyncio.Task[GraphHost]] = {}
        self._failed: dict[UUID, tuple[float, HostFailed]] = {}

    def has_running(self, revision_id: UUID) -> bool:
        """Return whether the revision's host is running; it does not count as used."""
        host = self._hosts.get(revision_id)
        return host is not None and host.is_alive

    def get_running(self, revision_id: UUID) -> GraphHost | None:
        """Return the revision's host if it is running."""
        host = self._hosts.get(revision_id)
        if host is None or not host.is_alive:
            return None
        self._hosts.move_to_end(revision_id)
        return host

    async def get(self, revision: RevisionRef) -> GraphHost:
        """Return the revision's host; start it if necessary. Raises `HostFailed`."""
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
            host = GraphHost(
                revision,
                launched,
                self._log,
                self._load_asgi_app,
                self._on_unreported,
                turns=self._turns,
            )
            try:
                await host.ready()
            except BaseException:
                host.close()
                raise
        except HostFailed:
            raise
        except Exception as error:
            logger.exception("Starting the graph host of revision %s failed.", revision.revision_id)
            raise HostFailed(f"The agent's process could not be started: {error}") from error
        return host

    def remove(self, host: GraphHost) -> None:
        """Forget the host, which the caller ends; the revision's next run starts another one."""
        if self._hosts.get(host.revision.revision_id) is host:
            del self._hosts[host.revision.revision_id]

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
                task = asyncio.create_task(host.retire())
                self._retiring.add(task)
                task.add_done_callback(self._retiring.discard)

    @property
    def hosts(self) -> list[GraphHost]:
        return [host for host in self._hosts.values() if host.is_alive]

    async def close(self) -> None:
        """Stop all hosts and wait for their exit."""
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        hosts, self._hosts = list(self._hosts.values()), OrderedDict()
        await asyncio.gather(*(host.retire() for host in hosts), *self._retiring)
