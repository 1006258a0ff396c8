"""A sandboxed process, seen from the platform."""

from __future__ import annotations

import enum
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from . import usage
from .policy import Limits, in_words


class Exceeded(enum.Enum):
    """Why the watchdog ended a sandbox, in words for the author of its code."""

    MEMORY = "it used more memory than its limit of {memory}"
    PROCESSES = "it started more processes and threads than its limit of {processes}"
    DISK = "it wrote more to disk than its limit of {disk}"


class SandboxedProcess:
    """The handle of one sandbox: a whole tree of processes that ends together.

    Safe to use from several threads. `pid` is the outermost process, the one that stands for
    the tree; agent code never has that number inside.
    """

    def __init__(
        self, popen: subprocess.Popen[Any], *, limits: Limits, writable: list[Path], ends_on: int
    ) -> None:
        self._popen = popen
        self._ends_on = ends_on
        self.limits = limits
        self.writable = writable
        self.exceeded: Exceeded | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status of the command, 128 + n when signal n ended it; None while it runs."""
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
        """The limit that ended it, as the end of a sentence, or None."""
        if self.exceeded is None:
            return None
        return self.exceeded.value.format(
            memory=in_words(self.limits.memory_bytes),
            processes=self.limits.processes,
            disk=in_words(self.limits.disk_bytes or 0),
        )

    def poll(self) -> int | None:
        self._popen.poll()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. `TimeoutError` when it still runs after `timeout` seconds."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        code = self.returncode
        assert code is not None  # noqa: S101 - wait returned
        return code

    def kill(self, exceeded: Exceeded | None = None) -> None:
        """End the whole tree at once. Repeating is safe, also after it ended."""
        if self.exceeded is None and self._popen.poll() is None:
            self.exceeded = exceeded
        self._popen.send_signal(self._ends_on)

    def memory(self) -> int:
        """Bytes of private and shared memory that the tree holds now, each page counted once."""
        return usage.exact_memory(usage.tree(self.pid))

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
