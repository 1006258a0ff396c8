"""A thread per platform process that kills sandboxes which exceed their limits.

The kernel limits each process; this thread sums the usage of a tree, because most machines do not
let the platform write control groups. A check takes some hundred microseconds. The closer and the
faster a tree grows towards its limit, the sooner is the next check.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import cpu_groups, usage
from .cpu_shares import CpuShares
from .process import ExceededLimit, SandboxedProcess

logger = logging.getLogger(__name__)
_MAX_INTERVAL_SECONDS, _MIN_INTERVAL_SECONDS = 0.5, 0.02
_ASSUMED_GROWTH = 1024**3  # bytes per second that a tree may start to allocate at any time
_CROWDED_SHARE, _CROWDED_SECONDS = 0.9, 1.0
_DISK_SECONDS = 10.0
# More runnable threads, in this many consecutive checks, count as an attempt to starve other
# processes; many more do at once, since on a busy machine the next check may be late.
_GREEDY_THREADS, _GREEDY_CHECKS, _GREEDY_SECONDS = 4 * (os.cpu_count() or 1), 3, 0.1
_VERY_GREEDY_THREADS = 8 * _GREEDY_THREADS
# With this option of the kernel each session has its own share of the CPU, so that the priorities
# of threads only matter within their session. Sessions have a nice value of their own.
_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_LOWEST_NICE = 19
_GREEDY_OWNER_NICE = 10
"""Added to the nice value of the sandboxes of a greedy owner: a tenth of the weight."""
_CAP_SYS_NICE = 1 << 23
_WATCHDOG_NICE = -15
"""Of the watchdog's thread: 200 busy threads of nice 5 have 65 times the weight of nice 0."""


class SandboxWatch:
    """State of one sandbox between two checks."""

    def __init__(self, process: SandboxedProcess, shares: CpuShares | None = None) -> None:
        self.process = process
        self._shares = shares or CpuShares(time.monotonic())
        self.nice = process.limits.nice
        self.due = time.monotonic()
        self.checked_at = self.due
        self.memory = 0
        self.crowded_since: float | None = None
        self.greedy_checks = 0
        self.is_idle = False
        self.sessions: dict[int, int] = {}
        """Sessions with their nice values, where the kernel has them: -1 is not set yet."""
        self.disk_checked_at = self.due
        self.free_space: int | None = None

    def check(self) -> bool:
        """Kill the sandbox over a limit, or schedule the next check. False once it has ended."""
        if self.process.poll() is not None:
            if self.process.cpu_group is not None:
                cpu_groups.cpu_groups.remove(self.process.cpu_group)
            self._shares.forget(self)
            return False
        now = time.monotonic()
        exceeded = self._check_tree(now) or self._check_disk(now)
        if exceeded is not None:
            self.process.kill(exceeded)
        return exceeded is None

    def _check_tree(self, now: float) -> ExceededLimit | None:
        limits = self.process.limits
        pids = usage.process_tree(self.process.pid)
        memory, tasks, sessions = usage.measure_usage(pids)
        if self.process.cpu_group is None:
            self._follow_owner(pids, now)
        sessions_above = self._lower_sessions(sessions)
        if len(self.sessions) > _VERY_GREEDY_THREADS or (
            self.is_idle and sessions_above > _GREEDY_THREADS
        ):
            return ExceededLimit.SESSIONS
        if tasks >= limits.processes * _CROWDED_SHARE:
            # Many processes share most of their memory, and to measure it exactly would take
            # seconds during a fork bomb: the tree has `_CROWDED_SECONDS` to shrink.
            if self.crowded_since is None:
                self.crowded_since = now
                self._schedule_as_idle(pids)
            elif now - self.crowded_since > _CROWDED_SECONDS:
                return ExceededLimit.PROCESSES
        else:
            self.crowded_since = None
            if memory > limits.memory_bytes:
                if tasks > _GREEDY_THREADS:
                    # During a fork bomb the exact measurement would wait for its processes.
                    self._schedule_as_idle(pids)
                memory = usage.exact_memory(pids)
            if memory > limits.memory_bytes:
                return ExceededLimit.MEMORY
            self._deprioritize_greedy_tree(pids, tasks)
        growth = 2 * (memory - self.memory) / max(now - self.checked_at, _MIN_INTERVAL_SECONDS)
        headroom = (limits.memory_bytes - memory) / max(growth, _ASSUMED_GROWTH)
        is_suspicious = self.greedy_checks > 0 or sessions_above > 0
        self.due = time.monotonic() + min(
            max(headroom, _MIN_INTERVAL_SECONDS),
            _GREEDY_SECONDS if is_suspicious else _MAX_INTERVAL_SECONDS,
        )
        self.memory, self.checked_at = memory, now
        return None

    def _deprioritize_greedy_tree(self, pids: list[int], tasks: int) -> None:
        """Schedule a tree with too many runnable threads as idle from now on."""
        running = len(usage.running_threads(pids)) if tasks > _GREEDY_THREADS else 0
        if running <= _GREEDY_THREADS:
            self.greedy_checks = 0
            return
        self.greedy_checks += _GREEDY_CHECKS if running > _VERY_GREEDY_THREADS else 1
        if self.greedy_checks >= _GREEDY_CHECKS:
            self._schedule_as_idle(pids)

    def _follow_owner(self, pids: list[int], now: float) -> None:
        """Lower the priority of the tree while its owner is greedy.

        Without the privilege to raise it again, only sessions are lowered (`_lower_sessions`).
        """
        self._shares.record(self.process.owner, self, usage.cpu_seconds(pids), now)
        normal = self.process.limits.nice
        lowered = min(normal + _GREEDY_OWNER_NICE, _LOWEST_NICE)
        is_greedy = self._shares.is_greedy(self.process.owner)
        if _may_raise_priorities():
            if is_greedy:
                # Each time: a thread may have started another one since the last check.
                _set_nice(pids, lowered, where=lambda nice: nice < lowered)
            elif self.nice != normal:
                _set_nice(pids, normal, where=lambda nice: nice == lowered)
        self.nice = lowered if is_greedy else normal

    def _lower_sessions(self, sessions: dict[int, int]) -> int:
        """Give the sessions of the tree its nice value; return how many still have another one.

        Many sessions, and those of a tree that was scheduled as idle, get the lowest priority. Even
        so 200 of them delay others by a second, which is why their number has a limit.
        An unprivileged process may change ten sessions per second on the whole machine. A tree with
        a control group needs none of this: within one the kernel ignores sessions.
        """
        if self.process.cpu_group is not None or not _has_autogroup():
            return 0
        is_low = self.is_idle or len(sessions) > _GREEDY_THREADS
        nice = _LOWEST_NICE if is_low else self.nice
        self.sessions = {session: self.sessions.get(session, -1) for session in sessions}
        above = [session for session in sessions if self.sessions[session] != nice]
        for number, session in enumerate(above):
            try:
                Path(f"/proc/{sessions[session]}/autogroup").write_text(str(nice))
            except (FileNotFoundError, ProcessLookupError):
                pass
            except OSError:
                return len(above) - number
            self.sessions[session] = nice
        return 0

    def _schedule_as_idle(self, pids: list[int]) -> None:
        """Schedule the tree as idle, except its outermost process.

        Without bubblewrap that process ends the others, which an idle one could not do on a busy
        machine.
        """
        self.is_idle = True
        for pid in pids:
            if pid == self.process.pid:
                continue
            for thread in usage.threads(pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))

    def _check_disk(self, now: float) -> ExceededLimit | None:
        limit = self.process.limits.disk_bytes
        if limit is None or not self.process.writable:
            return None
        # Walking the files is slow: do so only if free space shrank, or after `_DISK_SECONDS`.
        free = usage.free_space(self.process.writable)
        if self.free_space is None:
            self.free_space = free
        used_bytes = self.free_space - free
        if used_bytes < limit / 8 and now - self.disk_checked_at < _DISK_SECONDS:
            return None
        self.free_space, self.disk_checked_at = free, now
        return ExceededLimit.DISK if usage.disk_usage(self.process.writable) > limit else None


class Watchdog:
    """Checks every sandbox of this process until it ends."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watches: list[SandboxWatch] = []
        self._shares = CpuShares(time.monotonic())
        self._thread: threading.Thread | None = None

    def add(self, process: SandboxedProcess) -> None:
        with self._condition:
            self._watches.append(SandboxWatch(process, self._shares))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sandbox-watchdog")
                self._thread.daemon = True
                self._thread.start()
            self._condition.notify()

    def _run(self) -> None:
        # Without control groups it competes with the trees that it has to stop.
        with contextlib.suppress(OSError):  # an ordinary user may not
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _WATCHDOG_NICE)
        while True:
            with self._condition:
                if not self._watches:
                    self._condition.wait()
                elif (pause := min(w.due for w in self._watches) - time.monotonic()) > 0:
                    self._condition.wait(pause)
                now = time.monotonic()
                due = [watch for watch in self._watches if watch.due <= now]
            stopped = [watch for watch in due if not _check(watch)]
            if stopped:
                with self._condition:
                    self._watches = [watch for watch in self._watches if watch not in stopped]


def _set_nice(pids: list[int], nice: int, *, where: Callable[[int], bool]) -> None:
    """Set the nice value of the threads that have such a one now."""
    for thread in (thread for pid in pids for thread in usage.threads(pid)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if where(os.getpriority(os.PRIO_PROCESS, thread)):
                os.setpriority(os.PRIO_PROCESS, thread, nice)


@functools.cache
def _may_raise_priorities() -> bool:
    """Whether this process may give a process of another user a better priority again."""
    status = Path("/proc/self/status").read_text()
    [effective] = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(int(effective, 16) & _CAP_SYS_NICE)


def _has_autogroup() -> bool:
    try:
        return _AUTOGROUP.read_bytes().strip() == b"1"
    except OSError:
        return False


def _check(watch: SandboxWatch) -> bool:
    try:
        return watch.check()
    except OSError:
        # The process just ended, or no file descriptor is left: check again soon.
        watch.due = time.monotonic() + _MIN_INTERVAL_SECONDS
        return True
    except Exception:
        # If this thread ended, no sandbox of this process would have limits any more.
        logger.exception("The limits of sandbox %s were not checked", watch.process.pid)
        watch.due = time.monotonic() + _MAX_INTERVAL_SECONDS
        return True


def _reset_after_fork() -> None:
    # A forked child has neither the thread nor the sandboxes of its parent.
    global watchdog  # noqa: PLW0603
    watchdog = Watchdog()


watchdog = Watchdog()
os.register_at_fork(after_in_child=_reset_after_fork)
