"""`make up REGIONS=us,eu`: several regions on one machine, each an installation of its own.

Each has a data folder below the one that was given, so databases, Redis, objects and secrets are
its own, and a port of its own. They share one thing: what lies elsewhere than in the US is told
where billing records are kept, and gets there with a role that sees nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from apps.core.instance_paths import Instance
from apps.core.regions import BILLING_REGION, REGIONS
from config.embedded.launch import CannotStart
from config.env import BASE_DIR, Env
from config.supervisor.terminal import Terminal


def parse(words: str) -> list[str]:
    """The regions that are named; `CannotStart` for one that does not exist."""
    names = [word.strip().lower() for word in words.split(",") if word.strip()]
    for name in names:
        if name not in REGIONS:
            raise CannotStart(f"there is no region {name!r}: there are {', '.join(REGIONS)}.")
    return list(dict.fromkeys(names))


def environment(env: Env, region: str, position: int, regions: Sequence[str]) -> dict[str, str]:
    """What the installation of one region gets instead of what all were given."""
    port = env.port + position
    found = {
        "REGION": region,
        "PORT": str(port),
        "DATA_DIR": str(env.instance.data_dir / region),
    }
    if region != BILLING_REGION and BILLING_REGION in regions:
        home = Instance(env.instance.data_dir / BILLING_REGION)
        found["BILLING_DATABASE_URL"] = home.billing_url
    return found


class Regions:
    """The supervisors of several regions under one."""

    def __init__(self, env: Env, regions: Sequence[str], *, companion: int | None = None) -> None:
        for name in ("DATABASE_URL", "REDIS_URL", "PUBLIC_URL", "INTERNAL_URL"):
            if os.environ.get(name):
                raise CannotStart(
                    f"{name} is of one installation: start each region by itself, with REGION."
                )
        self._env, self._regions = env, regions
        self._companion = companion or os.getpid()
        self._terminal = Terminal()
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Start all, stay until a signal or the end of one, stop all; the worst exit status."""
        loop = asyncio.get_running_loop()
        life = asyncio.create_task(self._live())
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(ending, self._stop)
        return await life

    async def _live(self) -> int:
        async with asyncio.TaskGroup() as tasks:
            ends = []
            for position, region in enumerate(self._regions):
                changed = environment(self._env, region, position, self._regions)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "config.supervisor"),
                    *("--companion", str(self._companion)),
                    cwd=BASE_DIR,
                    env={**os.environ, **changed},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    # A Ctrl-C goes to this process alone, which tells each of them once.
                    start_new_session=True,
                )
                self._running[region] = process
                tasks.create_task(self._relay(region, process))
                ends.append(tasks.create_task(self._until_end(process)))
        return max(end.result() for end in ends)

    async def _until_end(self, process: asyncio.subprocess.Process) -> int:
        """Its exit status; one region that ends takes the others with it."""
        status = await process.wait()
        self._stop()
        return abs(status)

    async def _relay(self, region: str, process: asyncio.subprocess.Process) -> None:
        """Each line that it says, behind its name."""
        assert process.stdout is not None  # noqa: S101
        async for line in process.stdout:
            self._terminal.said(region, line.decode(errors="replace").rstrip("\n"))

    def _stop(self) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
