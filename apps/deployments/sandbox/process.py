"""The handle of a sandboxed process."""

from __future__ import annotations

import contextlib
import enum
import os
import subprocess
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import IO, Any, Self

from . import usage
from .policy import Limits, format_size


class ExceededLimit(enum.Enum):
    """The limit that a killed sandbox exceeded, as a message for the author of its code."""

    MEMORY = "it used more memory than its limit of {memory}"
    PROCESSES = "it started more processes and threads than its limit of {processes}"
    DISK = "it wrote more to disk than its limit of {disk}"
    SESSIONS = "it kept more sessions of processes busy than this machine can share between others"


class SandboxedProcess:
    """The handle of one sandbox, whose process tree ends together.

    Thread-safe. `pid` is the outermost process of the tree, which is outside of the sandbox.
    """

    def __init__(
        self,
        popen: subprocess.Popen[Any],
        *,
        limits: Limits,
        writable: list[Path],
        ends_on: int,
        cpu_group: Path | None = None,
        owner: str = "",
    ) -> None:
        self._popen = popen
        self._ends_on = ends_on
        self.limits = limits
        self.writable = writable
        self.cpu_group = cpu_group
        """The control group of its process tree; None where the platform may not create any."""
        self.owner = owner
        self.exceeded: ExceededLimit | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit code of the command, 128 + n after signal n; None while it runs."""
        code = self._popen.returncode
        return 128 - code if code is not None and code < 0 else code

    @property
    def stdin(self) -> IO[Any] | None:
        return self._popen.stdin

    @property
    def stdout(self) -> IO[Any] | None:
        return self._popen.stdout

    @property
    def stderr(self) -> IO[Any] | None:
        return self._popen.stderr

    @property
    def stopped_because(self) -> str | None:
        """The exceeded limit as a clause for an error message, or None."""
        if self.exceeded is None:
            return None
        return self.exceeded.value.format(
            memory=format_size(self.limits.memory_bytes),
            processes=self.limits.processes,
            disk=format_size(self.limits.disk_bytes or 0),
        )

    def poll(self) -> int | None:
        self._popen.poll()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; `TimeoutError` if it still runs after `timeout` seconds."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        code = self.returncode
        assert code is not None  # noqa: S101 - wait returned
        return code

    def kill(self, exceeded: ExceededLimit | None = None) -> None:
        """Kill the process tree. Safe to repeat, also after it ended."""
        is_running = self._popen.poll() is None
        if self.exceeded is None and is_running:
            self.exceeded = exceeded
        # At first, bubblewrap's child waits for it and does not yet end with it.
        children = usage.children(self.pid) if is_running and self._ends_on == SIGKILL else []
        self._popen.send_signal(self._ends_on)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)

    def memory(self) -> int:
        """Return the memory of the tree in bytes, each shared page counted once."""
        return usage.exact_memory(usage.process_tree(self.pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._popen.__exit__(kind, error, trace)
