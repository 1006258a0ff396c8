"""Starting processes through the fork server."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from circus.process import Process as CircusProcess
from circus.watcher import Watcher

from config.fork_server import ForkRequest, short_address

ANSWER_TIMEOUT_SECONDS = 10


class ForkServerClient:
    """Requests forks from the fork server at a socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_ready(self) -> bool:
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    def fork(self, request: ForkRequest) -> int:
        """Start a process and return its pid. Raises `OSError` if the fork server cannot."""
        descriptors = [] if request.descriptor is None else [request.descriptor]
        with self._connect() as connection:
            socket.send_fds(connection, [request.to_bytes()], descriptors)
            answer = connection.recv(32)
        if not answer:
            raise OSError(f"the fork server did not start {request.title!r}")
        return int(answer)

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(ANSWER_TIMEOUT_SECONDS)
        try:
            with short_address(self._path) as address:
                connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection


class _ForkedChild(psutil.Process):
    """A forked child of this process, with the interface of `psutil.Popen` that circus uses."""

    stdin = stdout = stderr = None
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status; None while the child runs."""
        try:
            # None if circus has already collected the exit status.
            self.returncode = self.wait(timeout=0) or 0
        except psutil.TimeoutExpired:
            return None
        return self.returncode


class ForkingWatcher(Watcher):  # type: ignore[misc]  # circus has no types
    """A watcher whose process is forked by `fork`, or started by its command if that fails."""

    def __init__(self, *args: Any, fork: Callable[[], int], **options: Any) -> None:
        super().__init__(*args, **options)
        self.fork = fork

    @property
    def _process_class(self) -> type[CircusProcess]:
        return _ForkedProcess


class _ForkedProcess(CircusProcess):  # type: ignore[misc]  # circus has no types
    def spawn(self) -> None:
        try:
            pid = self.watcher.fork()
        except OSError:
            super().spawn()
            return
        self.started = psutil.Process(pid).create_time()
        self._worker = _ForkedChild(pid)
