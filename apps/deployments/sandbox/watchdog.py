"""One thread per process that ends sandboxes which outgrow their limits.

The kernel limits each process; what a whole tree uses is summed here, since control groups are
not ours to write on most machines. A look costs some hundred microseconds, and comes the sooner
the nearer and the faster a tree grows towards its limit.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from . import usage
from .process import Exceeded, SandboxedProcess

_LONGEST, _SHORTEST = 0.5, 0.02
_ASSUMED_GROWTH = 1024**3  # bytes a second that a tree may start to take at any moment
_CROWDED_SHARE, _CROWDED_SECONDS = 0.9, 1.0
_DISK_SECONDS = 10.0
# So many threads for each processor, wanting to run in so many looks in a row, are an attack on
# everybody else's turn, or look like one.
_GREEDY_THREADS, _GREEDY_LOOKS = 4 * (os.cpu_count() or 1), 4


class Watch:
    """What is remembered of one sandbox between two looks."""

    def __init__(self, process: SandboxedProcess) -> None:
        self.process = process
        self.due = time.monotonic()
        self.looked_at = self.due
        self.memory = 0
        self.crowded_since: float | None = None
        self.greedy_looks = 0
        self.disk_looked_at = self.due
        self.free_space: int | None = None

    def look(self) -> bool:
        """End the sandbox when it is over a limit, else plan the next look. False once ended."""
        if self.process.poll() is not None:
            return False
        now = time.monotonic()
        exceeded = self._tree(now) or self._disk(now)
        if exceeded is not None:
            self.process.kill(exceeded)
        return exceeded is None

    def _tree(self, now: float) -> Exceeded | None:
        limits = self.process.limits
        pids = usage.tree(self.process.pid)
        memory, tasks = usage.measure(pids)
        if memory > limits.memory_bytes:
            memory = usage.exact_memory(pids)
        if memory > limits.memory_bytes:
            return Exceeded.MEMORY

        if tasks < limits.processes * _CROWDED_SHARE:
            self.crowded_since = None
        elif self.crowded_since is None:
            self.crowded_since = now
        elif now - self.crowded_since > _CROWDED_SECONDS:
            return Exceeded.PROCESSES
        self._share_processors(pids, tasks)

        growth = 2 * (memory - self.memory) / max(now - self.looked_at, _SHORTEST)
        room = (limits.memory_bytes - memory) / max(growth, _ASSUMED_GROWTH)
        self.due = time.monotonic() + min(max(room, _SHORTEST), _LONGEST)
        self.memory, self.looked_at = memory, now
        return None

    def _share_processors(self, pids: list[int], tasks: int) -> None:
        """Let a tree that keeps more threads busy than there is room for run last from now on."""
        greedy = tasks > _GREEDY_THREADS and len(usage.running_threads(pids)) > _GREEDY_THREADS
        self.greedy_looks = self.greedy_looks + 1 if greedy else 0
        if self.greedy_looks >= _GREEDY_LOOKS:
            for thread in (thread for pid in pids for thread in usage.threads(pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))

    def _disk(self, now: float) -> Exceeded | None:
        limit = self.process.limits.disk_bytes
        if limit is None or not self.process.writable:
            return None
        # Walking the files costs; so only when space went away, or after a while.
        free = usage.free_space(self.process.writable)
        if self.free_space is None:
            self.free_space = free
        gone = self.free_space - free
        if gone < limit / 8 and now - self.disk_looked_at < _DISK_SECONDS:
            return None
        self.free_space, self.disk_looked_at = free, now
        return Exceeded.DISK if usage.disk(self.process.writable) > limit else None


class Watchdog:
    """Looks at every sandbox of this process until it ends."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watches: list[Watch] = []
        self._thread: threading.Thread | None = None

    def add(self, process: SandboxedProcess) -> None:
        with self._condition:
            self._watches.append(Watch(process))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sandbox-watchdog")
                self._thread.daemon = True
                self._thread.start()
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._watches:
                    self._condition.wait()
                elif (pause := min(w.due for w in self._watches) - time.monotonic()) > 0:
                    self._condition.wait(pause)
                now = time.monotonic()
                due = [watch for watch in self._watches if watch.due <= now]
            ended = [watch for watch in due if not _look(watch)]
            if ended:
                with self._condition:
                    self._watches = [watch for watch in self._watches if watch not in ended]


def _look(watch: Watch) -> bool:
    try:
        return watch.look()
    except OSError:
        # A race with the end of a process, or no descriptor left: look again soon.
        watch.due = time.monotonic() + _SHORTEST
        return True


def _renew() -> None:
    # A forked child has neither the thread nor the sandboxes of its parent.
    global watchdog  # noqa: PLW0603
    watchdog = Watchdog()


watchdog = Watchdog()
os.register_at_fork(after_in_child=_renew)
