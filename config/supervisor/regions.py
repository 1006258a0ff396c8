"""`make up REGIONS=us,eu`: several regions on one machine, each its own installation.

Each region has its own port and its own data folder below DATA_DIR, with databases, Redis, objects
and secrets. Regions other than the US connect to the US database for billing records, with a role
that is limited to billing's tables.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from apps.core.instance import Instance
from apps.core.regions import BILLING_REGION, REGIONS
from config.embedded.launch import CannotStart
from config.env import BASE_DIR, Env
from config.supervisor.terminal import Terminal


def parse(text: str) -> list[str]:
    """Parse a list of region names. Raises `CannotStart` for an unknown one."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in REGIONS:
            raise CannotStart(f"unknown region {name!r}; available regions: {', '.join(REGIONS)}.")
    return list(dict.fromkeys(names))


def environment(env: Env, region: str, position: int, regions: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that differ in one region."""
    port = env.port + position
    variables = {
        "REGION": region,
        "PORT": str(port),
        "DATA_DIR": str(env.instance.data_dir / region),
    }
    if region != BILLING_REGION and BILLING_REGION in regions:
        billing_instance = Instance(env.instance.data_dir / BILLING_REGION)
        variables["BILLING_DATABASE_URL"] = billing_instance.billing_url
    return variables


_PUBLIC_URLS = ("PUBLIC_URL", "PUBLIC_API_URL", "PUBLIC_BEACON_URL")


class Regions:
    """The supervisors of several regions under one."""

    def __init__(self, env: Env, regions: Sequence[str], *, companion: int | None = None) -> None:
        for name in ("DATABASE_URL", "REDIS_URL", *_PUBLIC_URLS, "INTERNAL_URL"):
            if os.environ.get(name):
                raise CannotStart(
                    f"{name} applies to one installation: start each region separately with REGION."
                )
        self._env, self._regions = env, regions
        self._companion = companion or os.getpid()
        self._terminal = Terminal()
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Run until a signal or the end of one region; return the highest exit status."""
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._run_regions())
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signal_number, self._stop)
        return await task

    async def _run_regions(self) -> int:
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
                    # Ctrl-C reaches only this process, which forwards one signal to each region.
                    start_new_session=True,
                )
                self._running[region] = process
                tasks.create_task(self._relay(region, process))
                ends.append(tasks.create_task(self._until_end(process)))
        return max(end.result() for end in ends)

    async def _until_end(self, process: asyncio.subprocess.Process) -> int:
        """Return the exit status; the end of one region stops the others."""
        status = await process.wait()
        self._stop()
        return abs(status)

    async def _relay(self, region: str, process: asyncio.subprocess.Process) -> None:
        """Print each output line with the region's name."""
        assert process.stdout is not None  # noqa: S101
        async for line in process.stdout:
            self._terminal.region_line(region, line.decode(errors="replace").rstrip("\n"))

    def _stop(self) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
