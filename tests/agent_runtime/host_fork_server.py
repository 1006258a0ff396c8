"""Forks graph hosts from a process that has imported the libraries of agents.

A host of a test then starts in milliseconds instead of seconds. Run as a program with a
descriptor: `python -P host_fork_server.py FD`. A request on the socket FD is a folder, with three
descriptors: the host's socket, its output, and the pipe for its exit status.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

MODULES = (
    "graph_host.__main__",
    "langchain_core.language_models.fake_chat_models",
    "langchain_core.tools",
    "langgraph.config",
    "langgraph.func",
    "langgraph.graph",
    "langgraph.prebuilt",
    "langgraph.types",
)
DESCRIPTORS = 3


class ForkedHost:
    """A host as `subprocess.Popen` presents a process, as far as the engine and tests need it."""

    def __init__(self, pid: int, stdout: IO[bytes], status: int) -> None:
        self.pid, self.stdout, self._status = pid, stdout, status
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_status(None if timeout is None else timeout * 1000)
        if code is None:
            raise subprocess.TimeoutExpired("graph host", timeout or 0)
        return code

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _read_status(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if poll.poll(timeout):
                self.returncode = int(os.read(self._status, 16) or b"-9")
                os.close(self._status)
        return self.returncode


class HostForkServer:
    """The process from which hosts are forked. It ends with this process."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # Engines start hosts in several threads. Without the lock a thread could read the process
        # id of another thread's host, and then kill that host instead of its own.
        self._lock = threading.Lock()
        self._socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(there.fileno())],
                cwd="/",
                env=dict(env),
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )

    def fork_host(self, project: Path, host_socket: socket.socket) -> ForkedHost:
        output, output_end = os.pipe()
        status, status_end = os.pipe()
        descriptors = [host_socket.fileno(), output_end, status_end]
        with self._lock:
            socket.send_fds(self._socket, [os.fsencode(project)], descriptors)
            pid = int(self._socket.recv(16))
        os.close(output_end)
        os.close(status_end)
        return ForkedHost(pid, os.fdopen(output, "rb"), status)

    def stop(self) -> None:
        self._socket.close()
        self._process.wait()


def serve(requests: socket.socket) -> None:
    """Fork a host per request and report exit statuses, until the other side closes."""
    wakeup, wakeup_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 4096)
            _report_exits(statuses)
        if requests in ready:
            project, descriptors, _, _ = socket.recv_fds(requests, 4096, DESCRIPTORS)
            if not project:
                return
            host_socket, output, status = descriptors
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for fd in (requests.fileno(), wakeup, wakeup_end, status, *statuses.values()):
                    os.close(fd)
                _execute_host(os.fsdecode(project), host_socket, output)
            os.close(host_socket)
            os.close(output)
            statuses[pid] = status
            requests.send(str(pid).encode())


def _report_exits(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with os.fdopen(statuses.pop(pid), "wb") as report, contextlib.suppress(BrokenPipeError):
            report.write(str(os.waitstatus_to_exitcode(status)).encode())


def _execute_host(project: str, host_socket: int, output: int) -> None:
    code = 1
    try:
        os.chdir(project)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        sys.argv = ["graph_host", "--fd", str(host_socket)]
        importlib.import_module("graph_host.__main__").main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - printed as by the interpreter
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
