"""Circus keeps the processes running; this says what, in which order, and how patiently."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psutil
from circus.arbiter import Arbiter
from circus.exc import ConflictError
from circus.watcher import Watcher
from tornado.ioloop import IOLoop

from config.env import BASE_DIR
from config.supervisor.processes import MARK, Process

CHECK_SECONDS = 0.4
# A process that lived for less than this died young; the third such death in a row costs a pause.
SHORT_LIFE_SECONDS = 30
MAX_SHORT_LIVES = 3
MAX_BACKOFF_SECONDS = 30

PR_SET_CHILD_SUBREAPER = 36


class Fleet:
    """Starts processes, starts those that die again, stops them in order."""

    def __init__(
        self, environment: dict[str, str], on_death: Callable[[Process, float], None]
    ) -> None:
        """`on_death` hears of each restart, with the pause in seconds that comes before it."""
        self._environment = environment
        self._on_death = on_death
        self._watchers: dict[str, Watcher] = {}
        # In-process endpoints: nobody outside talks to this supervisor.
        self._arbiter = Arbiter(
            [],
            endpoint="inproc://control",
            pubsub_endpoint="inproc://events",
            check_delay=CHECK_SECONDS,
            loop=IOLoop.current(),
        )

    async def open(self) -> None:
        await self._arbiter.start()

    async def start(self, process: Process) -> None:
        """Return when the process was started; it may not be ready yet."""
        command, arguments = process.shell_words
        watcher: Watcher = await self._exclusively(
            lambda: self._arbiter.add_watcher(
                process.name,
                command,
                args=arguments,
                stop_signal=process.stop_signal,
                graceful_timeout=process.grace_seconds,
                respawn=process.respawn,
                use_sockets=process.inherits_listener,
                working_dir=str(BASE_DIR),
                copy_env=True,
                env=self._environment,
                hooks={"before_spawn": (_Backoff(self, process), False)},
                # Every start is another try: circus itself shall not give up.
                max_retry=-1,
                loop=IOLoop.current(),
            )
        )
        self._watchers[process.name] = watcher
        await self._exclusively(watcher.start)

    async def run(self, errand: Process) -> None:
        """Start a process that is not started again, and return when it has ended."""
        await self.start(errand)
        watcher = self._watchers[errand.name]
        while not watcher.is_stopped():
            await asyncio.sleep(0.05)
        await self._exclusively(lambda: self._arbiter.rm_watcher(errand.name))
        del self._watchers[errand.name]

    async def stop(self, names: Iterable[str]) -> None:
        """Stop these together: a signal, their time of grace, then the end."""
        chosen = [self._watchers.pop(name) for name in names if name in self._watchers]
        await self._exclusively(
            lambda: self._arbiter.stop_watchers(watcher_iter_func=lambda **_: chosen)
        )

    async def close(self) -> None:
        """Stop whatever is left, then circus."""
        await self.stop(list(self._watchers))
        await self._exclusively(self._arbiter.stop)
        while self.end_strays():
            await asyncio.sleep(0.01)

    def end_strays(self) -> int:
        """End the processes whose parent, one of ours, has died; return how many there were.

        They are handed to this process (see `adopt_orphans`), and nothing of a dead process is
        wanted: the one that takes its place starts its own.
        """
        ours = {pid for watcher in self._arbiter.iter_watchers() for pid in watcher.processes}
        strays = [child for child in psutil.Process().children() if child.pid not in ours]
        for stray in strays:
            with suppress(psutil.NoSuchProcess):
                stray.kill()
            with suppress(ChildProcessError):
                os.waitpid(stray.pid, os.WNOHANG)
        return len(strays)

    @property
    def names(self) -> list[str]:
        return list(self._watchers)

    def start_later(self, process: Process, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._start_again, process)

    def died_young(self, process: Process, pause: float) -> None:
        self._on_death(process, pause)

    def _start_again(self, process: Process) -> None:
        watcher = self._watchers.get(process.name)
        if watcher is not None:
            task = asyncio.ensure_future(self._exclusively(watcher.start))
            task.add_done_callback(asyncio.Future.exception)

    async def _exclusively(self, action: Callable[[], Any]) -> Any:
        """Circus allows one command at a time and refuses the others, so ask again."""
        while True:
            try:
                result = action()
            except ConflictError:
                await asyncio.sleep(0.01)
                continue
            return await result if asyncio.isfuture(result) else result


class _Backoff:
    """Circus asks this before each spawn; a process that keeps dying young waits longer."""

    def __init__(self, fleet: Fleet, process: Process) -> None:
        self._fleet = fleet
        self._process = process
        self._spawned_at = 0.0
        self._young_deaths = 0
        self._paused = False

    def __call__(self, **_: object) -> bool:
        now = time.monotonic()
        if self._spawned_at and not self._paused:
            young = now - self._spawned_at < SHORT_LIFE_SECONDS
            self._young_deaths = self._young_deaths + 1 if young else 0
            pause = 0.0
            if self._young_deaths >= MAX_SHORT_LIVES:
                pause = min(2.0 ** (self._young_deaths - 2), MAX_BACKOFF_SECONDS)
            self._fleet.died_young(self._process, pause)
            if pause:
                self._paused = True
                self._fleet.start_later(self._process, pause)
                return False
        if self._process.before_spawn is not None:
            self._process.before_spawn()
        self._paused = False
        self._spawned_at = now
        return True


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_leftovers(mark: str) -> int:
    """End what an earlier supervisor of the same data folder could not; return how many."""
    ended = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                process.kill()
                ended.append(process)
    psutil.wait_procs(ended, timeout=10)
    return len(ended)
