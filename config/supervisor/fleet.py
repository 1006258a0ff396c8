"""Starting, restarting and stopping processes with circus."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import psutil
from circus.arbiter import Arbiter
from circus.exc import ConflictError
from circus.watcher import Watcher
from tornado.ioloop import IOLoop

from config.env import BASE_DIR
from config.supervisor.forks import ForkingWatcher, ForkServerClient
from config.supervisor.processes import MARK, Process

CHECK_SECONDS = 0.4
# From the third consecutive exit within this time on, a restart waits (crash loop).
SHORT_RUN_SECONDS = 30
MAX_SHORT_RUNS = 3
MAX_BACKOFF_SECONDS = 30

PR_SET_CHILD_SUBREAPER = 36


class Fleet:
    """Starts processes, restarts those that exit, and stops them in order."""

    def __init__(
        self,
        environment: dict[str, str],
        fork_server: ForkServerClient,
        on_restart: Callable[[Process, float], None],
    ) -> None:
        """`on_restart` is called on each restart with the delay in seconds before it."""
        self._environment = environment
        self._fork_server = fork_server
        self._on_restart = on_restart
        self._watchers: dict[str, Watcher] = {}
        # In-process endpoints: the supervisor has no external control interface.
        self._arbiter = Arbiter(
            [],
            endpoint="inproc://control",
            pubsub_endpoint="inproc://events",
            check_delay=CHECK_SECONDS,
            loop=IOLoop.current(),
            proc_name="slipway: config.supervisor",
        )

    async def open(self) -> None:
        await self._arbiter.start()

    async def start(self, process: Process) -> None:
        """Start the process; it may not be ready on return."""
        watcher = self._create_watcher(process)
        await self._run_when_free(lambda: self._add_watcher(watcher))
        self._watchers[process.name] = watcher
        await self._run_when_free(watcher.start)

    def _create_watcher(self, process: Process) -> Watcher:
        command, arguments = process.shell_words
        options: dict[str, Any] = {
            "args": arguments,
            "stop_signal": process.stop_signal,
            "graceful_timeout": process.grace_seconds,
            "respawn": process.respawn,
            "use_sockets": process.inherits_listener,
            "working_dir": str(BASE_DIR),
            "copy_env": True,
            "env": self._environment,
            "hooks": {"before_spawn": (_Backoff(self, process), False)},
            # Circus retries forever; `_Backoff` delays the restarts.
            "max_retry": -1,
            "loop": IOLoop.current(),
        }
        if process.fork_request is None:
            return Watcher(process.name, command, **options)
        fork = partial(self._fork_server.fork, process.fork_request)
        return ForkingWatcher(process.name, command, fork=fork, **options)

    def _add_watcher(self, watcher: Watcher) -> None:
        """Do what `Arbiter.add_watcher` does, for a watcher of any class."""
        watcher.initialize(self._arbiter.evpub_socket, self._arbiter.sockets, self._arbiter)
        self._arbiter.watchers.append(watcher)
        self._arbiter._watchers_names[watcher.name.lower()] = watcher  # noqa: SLF001

    async def run(self, process: Process) -> None:
        """Run a one-off process to its end."""
        await self.start(process)
        watcher = self._watchers[process.name]
        while not watcher.is_stopped():
            await asyncio.sleep(0.05)
        await self._run_when_free(lambda: self._arbiter.rm_watcher(process.name))
        del self._watchers[process.name]

    async def stop(self, names: Iterable[str]) -> None:
        """Stop the processes together: stop signal, grace period, SIGKILL."""
        watchers = [self._watchers.pop(name) for name in names if name in self._watchers]
        await self._run_when_free(
            lambda: self._arbiter.stop_watchers(watcher_iter_func=lambda **_: watchers)
        )

    async def close(self) -> None:
        """Stop the remaining processes, then circus."""
        await self.stop(list(self._watchers))
        await self._run_when_free(self._arbiter.stop)
        while self.kill_orphans():
            await asyncio.sleep(0.01)

    def kill_orphans(self) -> int:
        """Kill processes whose parent, a process of the fleet, has died; return their number.

        The kernel reparents them to this process (see `set_child_subreaper`). A restarted process
        starts its own children.
        """
        fleet_pids = {pid for watcher in self._arbiter.iter_watchers() for pid in watcher.processes}
        orphans = [child for child in psutil.Process().children() if child.pid not in fleet_pids]
        for orphan in orphans:
            with suppress(psutil.NoSuchProcess):
                orphan.kill()
            with suppress(ChildProcessError):
                os.waitpid(orphan.pid, os.WNOHANG)
        return len(orphans)

    @property
    def names(self) -> list[str]:
        return list(self._watchers)

    def start_later(self, process: Process, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._start_again, process)

    def report_restart(self, process: Process, delay: float) -> None:
        self._on_restart(process, delay)

    def _start_again(self, process: Process) -> None:
        watcher = self._watchers.get(process.name)
        if watcher is not None:
            task = asyncio.ensure_future(self._run_when_free(watcher.start))
            task.add_done_callback(asyncio.Future.exception)

    async def _run_when_free(self, action: Callable[[], Any]) -> Any:
        """Retry until circus is free: it allows one command at a time."""
        while True:
            try:
                result = action()
            except ConflictError:
                await asyncio.sleep(0.01)
                continue
            return await result if asyncio.isfuture(result) else result


class _Backoff:
    """Hook before each spawn: delays restarts of a crash-looping process exponentially."""

    def __init__(self, fleet: Fleet, process: Process) -> None:
        self._fleet = fleet
        self._process = process
        self._spawned_at = 0.0
        self._short_run_count = 0
        self._paused = False

    def __call__(self, **_: object) -> bool:
        now = time.monotonic()
        if self._spawned_at and not self._paused:
            is_short = now - self._spawned_at < SHORT_RUN_SECONDS
            self._short_run_count = self._short_run_count + 1 if is_short else 0
            delay = 0.0
            if self._short_run_count >= MAX_SHORT_RUNS:
                delay = min(2.0 ** (self._short_run_count - 2), MAX_BACKOFF_SECONDS)
            self._fleet.report_restart(self._process, delay)
            if delay:
                self._paused = True
                self._fleet.start_later(self._process, delay)
                return False
        if self._process.before_spawn is not None:
            self._process.before_spawn()
        self._paused = False
        self._spawned_at = now
        return True


def set_child_subreaper() -> None:
    """Make this process the parent of orphaned descendants (child subreaper)."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_leftovers(mark: str) -> int:
    """Kill processes that an earlier supervisor of the data folder left; return their number."""
    killed = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, timeout=10)
    return len(killed)
