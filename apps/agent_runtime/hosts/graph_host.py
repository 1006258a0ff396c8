"""The graph hosts of a worker: one warm process per revision, started when first needed."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from apps.agent_runtime.hosts.launch import Launched, Launcher
from apps.agent_runtime.hosts.loopback_calls import OwnCalls
from apps.graph_host import wire
from apps.graph_host.wire import Frame, Link

logger = logging.getLogger(__name__)

HELLO_SECONDS = 60
END_SECONDS = 5
LASTING_SECONDS = 2.0
"""How long a revision that cannot start is not tried again."""
_LOG_READ = 64 * 1024
_LONGEST_LINE = 8 * 1024


class HostFailed(Exception):
    """The graph host of a revision could not be started; the text is for its author.

    `is_lasting` when the revision is at fault, so that trying again is of no use.
    """

    def __init__(self, reason: str, *, is_lasting: bool = False) -> None:
        super().__init__(reason)
        self.is_lasting = is_lasting


class RevisionRef(NamedTuple):
    """A revision and whose it is."""

    revision_id: UUID
    deployment_id: UUID
    workspace_id: UUID


class Session(Protocol):
    """A run or a call that a host works on."""

    def take(self, frame: Frame) -> None:
        """Handle a frame `[kind, key, number, ...]` of the session's own."""

    def lost(self, reason: str) -> None:
        """The host is gone; nothing more will come."""


LogSink = Callable[[RevisionRef, list[str]], None]


class GraphHost:
    """A process and the link to it."""

    def __init__(self, revision: RevisionRef, launched: Launched, log: LogSink) -> None:
        self.revision = revision
        self.hello: dict[str, Any] = {}
        self.run_seconds: float | None = getattr(launched, "run_seconds", None)
        """How long a run may take, where the revision says so."""
        self.died_with = 0
        """How many runs and calls were there when the host ended by itself."""
        self._process = launched.process
        self._sessions: dict[int, Session] = {}
        self._own_calls = OwnCalls(self)
        self._keys = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._log = log
        self._rest = b""
        self._output_is_over = launched.process.stdout is None
        self._last_lines: deque[str] = deque(maxlen=20)
        self.link = Link(launched.socket, self._take, self._closed)
        self._follow_output()

    @property
    def is_alive(self) -> bool:
        return not self.link.closed

    @property
    def is_idle(self) -> bool:
        return not self._sessions

    @property
    def sessions(self) -> int:
        """How many runs and calls are there."""
        return len(self._sessions)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        """Return when the host has loaded its graphs; `HostFailed` when it will not."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.close()
            raise HostFailed(
                f"The agent's code took longer than {HELLO_SECONDS} s to import."
            ) from None

    def open(self, session: Session) -> int:
        """A key for a new session; its frames will carry it."""
        key = next(self._keys)
        if self.is_alive:
            self._sessions[key] = session
        else:
            self._loop.call_soon(session.lost, self._last_words())
        return key

    def forget(self, key: int) -> None:
        """The session needs no more frames."""
        self._sessions.pop(key, None)

    def close(self) -> None:
        """End the process at once. Its sessions are told."""
        self.link.close()
        if self._process.poll() is None:
            self._process.kill()

    async def ended(self) -> None:
        """Return when the process is gone and its output read; at most after some seconds."""
        deadline = self._loop.time() + END_SECONDS
        while self._process.poll() is None or not self._output_is_over:
            if self._loop.time() > deadline:
                logger.error("The graph host %s does not end.", self._process.pid)
                return
            await asyncio.sleep(0.005)

    # Frames

    def _take(self, frame: Frame) -> None:
        session = self._sessions.get(frame[1]) if len(frame) > 2 else None
        if session is not None:
            session.take(frame)
        elif frame[0] == "loop":
            self._own_calls.take(frame)
        elif frame[0] == "hello" and not self._ready.done():
            self.hello = frame[3]
            if self.hello.get("protocol") != wire.PROTOCOL:
                spoken = "The graph host speaks another protocol."
                self._ready.set_exception(HostFailed(spoken, is_lasting=True))
            elif problem := self.hello.get("problem"):
                self._ready.set_exception(HostFailed(problem, is_lasting=True))
            else:
                self._ready.set_result(None)

    def _closed(self, error: BaseException | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        reason = self._last_words()
        if not self._ready.done():
            self._ready.set_exception(HostFailed(f"The agent's process ended. {reason}"))
            self._ready.exception()
        self._own_calls.lost()
        sessions, self._sessions = self._sessions, {}
        self.died_with = len(sessions)
        for session in sessions.values():
            session.lost(reason)

    def _last_words(self) -> str:
        why = getattr(self._process, "stopped_because", None)
        if why:
            return f"The agent's process was stopped because {why}."
        said = "\n".join(self._last_lines)
        return f"Its last lines were:\n{said}" if said else "It said nothing."

    # Output

    def _follow_output(self) -> None:
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
            data = os.read(out.fileno(), _LOG_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(out.fileno())
            out.close()
            self._output_is_over = True
            self._say([self._rest] if self._rest else [])
            self._reap()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        self._say(lines)

    def _reap(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(0.2, self._reap)

    def _say(self, lines: list[bytes]) -> None:
        texts = [
            line[:_LONGEST_LINE].decode("utf-8", "replace").replace("\0", "") for line in lines
        ]
        texts = [text.rstrip() for text in texts if text.strip()]
        if texts:
            self._last_lines.extend(texts)
            self._log(self.revision, texts)


class HostPool:
    """The hosts of one worker process."""

    def __init__(self, launcher: Launcher, most: int, log: LogSink) -> None:
        self._launcher = launcher
        self._most = most
        self._log = log
        self._hosts: OrderedDict[UUID, GraphHost] = OrderedDict()
        self._starting: dict[UUID, asyncio.Task[GraphHost]] = {}
        self._failed: dict[UUID, tuple[float, HostFailed]] = {}

    def warm(self, revision_id: UUID) -> GraphHost | None:
        """The revision's host when it is up already."""
        host = self._hosts.get(revision_id)
        if host is None or not host.is_alive:
            return None
        self._hosts.move_to_end(revision_id)
        return host

    async def get(self, revision: RevisionRef) -> GraphHost:
        """The revision's host, started if need be. `HostFailed` when that cannot be done."""
        host = self.warm(revision.revision_id)
        if host is not None:
            return host
        at, failure = self._failed.get(revision.revision_id, (0.0, None))
        if failure is not None and asyncio.get_running_loop().time() - at < LASTING_SECONDS:
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
            if error.is_lasting:
                self._failed[revision.revision_id] = asyncio.get_running_loop().time(), error
            raise
        self._failed.pop(revision.revision_id, None)
        self._hosts[revision.revision_id] = host
        self._make_room()
        return host

    async def start(self, revision: RevisionRef) -> GraphHost:
        """A host of the revision that belongs to the caller. `HostFailed` when there is none."""
        loop = asyncio.get_running_loop()
        try:
            launched = await loop.run_in_executor(None, self._launcher, revision.revision_id)
            host = GraphHost(revision, launched, self._log)
            await host.ready()
        except HostFailed:
            raise
        except Exception as error:
            logger.exception("The graph host of revision %s did not start.", revision.revision_id)
            raise HostFailed(f"The agent's process could not be started: {error}") from error
        return host

    def _make_room(self) -> None:
        """Close the longest unused hosts above the limit; never one that works."""
        for revision_id, host in list(self._hosts.items()):
            if not host.is_alive:
                del self._hosts[revision_id]
        for revision_id, host in list(self._hosts.items())[:-1]:
            if len(self._hosts) <= self._most:
                return
            if host.is_idle:
                del self._hosts[revision_id]
                host.close()

    @property
    def hosts(self) -> list[GraphHost]:
        return [host for host in self._hosts.values() if host.is_alive]

    async def close(self) -> None:
        """End every host and return when they are gone."""
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        hosts, self._hosts = list(self._hosts.values()), OrderedDict()
        for host in hosts:
            host.close()
        await asyncio.gather(*(host.ended() for host in hosts))
