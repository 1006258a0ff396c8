"""The builder's side of a graph host's socket: a greeting and a few questions, one at a time."""

from __future__ import annotations

import os
import select
from collections import deque
from typing import Any

from apps.core.json import dumps, loads
from apps.deployments.builds.build_context import TICK_SECONDS, Work
from apps.deployments.builds.errors import BuildFailed
from apps.deployments.hosts import LaunchedHost
from apps.graph_host import wire

_KEY = 1
_TAIL_LINES = 40


class Conversation:
    """Talks to a host of the revision in the making; what it prints goes to the build log."""

    def __init__(self, work: Work, host: LaunchedHost) -> None:
        self.work = work
        self.host = host
        self._decoder = wire.Decoder()
        self._frames: deque[wire.Frame] = deque()
        self._rest = b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._printing = True

    def greeting(self) -> dict[str, Any]:
        """What the host says of itself once the project is imported.

        Raises `BuildFailed` when it ended before or found something wrong with the project.
        """
        hello = self._next("hello")[3]
        if hello.get("protocol") != wire.PROTOCOL:
            raise BuildFailed("The graph host speaks another version of the protocol.")
        if hello.get("problem"):
            raise BuildFailed(hello["problem"])
        if hello["problems"]:
            raise BuildFailed("\n\n".join(hello["problems"].values()))
        greeting: dict[str, Any] = hello
        return greeting

    def ask(self, graph_id: str, method: str, params: dict[str, Any] | None = None) -> Any:
        """The answer to a call about one graph; `BuildFailed` with what its code raised."""
        question = ("call", _KEY, graph_id, method, dumps(params or {}))
        self.host.socket.sendall(wire.encode(question))
        *_, answered, value = self._next("result")
        if not answered:
            reason = loads(value)
            raise BuildFailed(f"Graph {graph_id}: {reason['error']}: {reason['message']}")
        return loads(value)

    def _next(self, kind: str) -> wire.Frame:
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame[0] == kind:
                    return frame
            self._receive()

    def _receive(self) -> None:
        """Wait for a moment; take frames and printed lines."""
        self.work.tick()
        watched: list[Any] = [self.host.socket, *([self.host.logs] if self._printing else [])]
        ready, _, _ = select.select(watched, [], [], TICK_SECONDS)
        if self.host.logs in ready:
            self._print()
        if self.host.socket not in ready:
            return
        try:
            data = self.host.socket.recv(256 * 1024)
        except ConnectionError:
            data = b""
        if not data:
            raise BuildFailed(self._why_it_ended())
        try:
            self._frames.extend(self._decoder.feed(data))
        except ValueError as error:
            raise BuildFailed(f"The graph host sent something odd: {error}") from None

    def _print(self) -> None:
        data = os.read(self.host.logs.fileno(), 65_536)
        self._printing = bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            self._tail.append(text)
            self.work.log.write(text)

    def _why_it_ended(self) -> str:
        while self._printing and select.select([self.host.logs], [], [], 1.0)[0]:
            self._print()
        try:
            code = self.host.process.wait(5)
        except TimeoutError:
            code = -1
        if (limit := self.host.process.stopped_because) is not None:
            return f"The agent's process was stopped because {limit}."
        said = "\n".join(self._tail).strip()
        return f"The agent's process ended with status {code} while it started." + (
            f"\n{said}" if said else ""
        )
