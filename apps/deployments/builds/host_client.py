"""The builder's client of a graph host: the handshake and calls, one at a time."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from typing import Any

from django.conf import settings

from apps.core.json import dumps, loads_small
from apps.deployments.builds.build_context import TICK_SECONDS, BuildContext, BuildFailed
from apps.deployments.hosts import LaunchedHost
from apps.graph_host import wire

_KEY = 1
_TAIL_LINES = 40
_MAX_LINE_BYTES = 64 * 1024
_MAX_RESULT_BYTES = 4 * 1024 * 1024


class HostCallFailed(Exception):
    """The code of a graph raised, or did not return in time; the message is for its author."""


class HostCallTimedOut(HostCallFailed):
    """The graph did not return in time, so the host may not respond to further calls."""


class HostClient:
    """Calls a host of the revision being built and copies its output to the build log."""

    def __init__(self, context: BuildContext, host: LaunchedHost) -> None:
        self.context = context
        self.host = host
        self._decoder = wire.Decoder()
        self._frames: deque[wire.Frame] = deque()
        self._partial_line = b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._is_output_open = True

    def handshake(self) -> dict[str, Any]:
        """Return the `hello` message that the host sends after importing the project.

        Raises `BuildFailed` if the host ended before, or reports a problem of the project.
        """
        hello: dict[str, Any] = self._next("hello", "The import of the graphs")[3]
        if hello.get("protocol") != wire.PROTOCOL:
            raise BuildFailed("The graph host uses another version of the protocol.")
        if hello.get("problem"):
            raise BuildFailed(hello["problem"])
        if hello["problems"]:
            raise BuildFailed("\n\n".join(hello["problems"].values()))
        return hello

    def call(self, graph_id: str, method: str, params: dict[str, Any] | None = None) -> Any:
        """Call a method of one graph.

        Raises `HostCallFailed`, or `BuildFailed` for an error of the project itself, such as a
        function that does not return a graph.
        """
        request = ("call", _KEY, graph_id, method, dumps(params or {}))
        self.host.socket.sendall(wire.encode(request))
        frame = self._wait("result")
        if frame is None:
            seconds = settings.GRAPH_IMPORT_TIMEOUT_SECONDS
            raise HostCallTimedOut(
                f"its creation exceeded its time limit of {seconds} seconds"
                " (GRAPH_IMPORT_TIMEOUT_SECONDS). Work that waits belongs in a node."
            )
        *_, succeeded, value = frame
        if not succeeded:
            reason = loads_small(value)
            if reason["error"] == "ProjectError":
                raise BuildFailed(reason["message"])
            raise HostCallFailed(f"{reason['error']}: {reason['message']}")
        return loads_small(value, _MAX_RESULT_BYTES)

    def _next(self, kind: str, activity: str) -> wire.Frame:
        """Wait for a frame. Raises `BuildFailed` that names the activity after the limit."""
        frame = self._wait(kind)
        if frame is None:
            seconds = settings.GRAPH_IMPORT_TIMEOUT_SECONDS
            raise BuildFailed(
                f"{activity} exceeded its time limit of {seconds} seconds"
                " (GRAPH_IMPORT_TIMEOUT_SECONDS). Work that waits belongs in a node."
            )
        return frame

    def _wait(self, kind: str) -> wire.Frame | None:
        """Wait for a frame; None after the limit."""
        deadline = time.monotonic() + settings.GRAPH_IMPORT_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            while self._frames:
                frame = self._frames.popleft()
                if frame[0] == kind:
                    return frame
            self._receive()
        return None

    def _receive(self) -> None:
        """Wait up to one tick for frames and output."""
        self.context.tick()
        sources: list[Any] = [self.host.socket, *([self.host.logs] if self._is_output_open else [])]
        ready, _, _ = select.select(sources, [], [], TICK_SECONDS)
        if self.host.logs in ready:
            self._read_output()
        if self.host.socket not in ready:
            return
        try:
            data = self.host.socket.recv(256 * 1024)
        except ConnectionError:
            data = b""
        if not data:
            raise BuildFailed(self._exit_message())
        try:
            self._frames.extend(self._decoder.feed(data))
        except ValueError as error:
            raise BuildFailed(f"The graph host sent an invalid frame: {error}") from None

    def _read_output(self) -> None:
        data = os.read(self.host.logs.fileno(), 65_536)
        self._is_output_open = bool(data)
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        if self._partial_line and (not data or len(self._partial_line) > _MAX_LINE_BYTES):
            lines.append(self._partial_line)
            self._partial_line = b""
        for line in lines:
            text = line.decode(errors="replace")
            self._tail.append(text)
            self.context.log.write(text)

    def _exit_message(self) -> str:
        while self._is_output_open and select.select([self.host.logs], [], [], 1.0)[0]:
            self._read_output()
        try:
            code = self.host.process.wait(5)
        except TimeoutError:
            code = -1
        if (limit := self.host.process.stopped_because) is not None:
            return f"The agent's process was stopped because {limit}."
        output = "\n".join(self._tail).strip()
        return f"The agent's process ended with status {code} while it started." + (
            f"\n{output}" if output else ""
        )
