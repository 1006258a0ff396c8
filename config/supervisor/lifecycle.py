"""From nothing to a platform that answers, and back to nothing."""

import asyncio
import http.client
import json
import logging
import shutil
import signal
from asyncio import CancelledError, TaskGroup, get_running_loop, to_thread
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import socket

import psutil
from circus.exc import ConflictError

from apps.core import heartbeat
from apps.core.fingerprint import COMMENT, code_fingerprint
from config.embedded.launch import CannotStart
from config.embedded.postgres import Postgres
from config.embedded.redis import Redis
from config.env import Env
from config.supervisor import processes, welcome
from config.supervisor.fleet import Fleet, adopt_orphans, kill_leftovers
from config.supervisor.instance_lock import claim_data_folder, open_listener
from config.supervisor.logs import Logs
from config.supervisor.processes import Process
from config.supervisor.terminal import Terminal

SERVICES_TIMEOUT_SECONDS = 120  # PostgreSQL may have a crash to recover from
READY_TIMEOUT_SECONDS = 120
WATCH_INTERVAL_SECONDS = 1


class InstanceLifecycle:
    """One life of one instance: `run` ends when a signal comes."""

    def __init__(
        self, env: Env, *, services_only: bool = False, companion: int | None = None
    ) -> None:
        """With a `companion`, the death of that process ends this life as a signal would."""
        self.env = env
        self.instance = env.instance
        self.terminal = Terminal()
        self._services_only = services_only
        self._companion = psutil.Process(companion) if companion else None
        self._services: list[Process] = []

    async def run(self) -> None:
        """Start everything, stay until a signal, stop everything that was started.

        Raises `CannotStart` with a sentence for the terminal.
        """
        # Both are held, not used, until the end of this process.
        self._lock = claim_data_folder(self.instance)
        self._listener = (
            None if self._services_only else open_listener(self.env.host, self.env.port)
        )
        self._logs = Logs(self.instance.log_dir, self.terminal)
        if ended := kill_leftovers(str(self.instance.data_dir)):
            self.terminal.step(f"Ended {ended} processes that an earlier start left behind")
        # What an earlier life counted is in nobody's sum any more: counters begin at nothing.
        shutil.rmtree(self.instance.run_dir / "metrics", ignore_errors=True)
        self._services = processes.service_processes(self.env)
        for service in self._services:
            if service.before_spawn is not None:
                service.before_spawn()
        _send_circus_to(self._logs)
        adopt_orphans()

        fleet = Fleet(processes.environment(self.env), self._tell_of_death)
        self._life = asyncio.create_task(self._live(fleet))
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            get_running_loop().add_signal_handler(ending, self._life.cancel)
        try:
            await self._life
        except CancelledError:
            self.terminal.step("Stopping")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._wind_down(fleet)

    async def _live(self, fleet: Fleet) -> None:
        await fleet.open()
        async with TaskGroup() as tasks:
            tasks.create_task(self._watch(fleet))
            await self._start_services(fleet)
            if self._listener is None:
                self.terminal.step("Ready")
            else:
                await self._start_platform(fleet, self._listener)

    async def _watch(self, fleet: Fleet) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            fleet.end_strays()
            self._logs.look()
            if self._companion is not None and not _lives(self._companion):
                self._life.cancel()

    async def _start_services(self, fleet: Fleet) -> None:
        names = {"postgres": "PostgreSQL", "redis": "Redis"}
        if self._services:
            words = " and ".join(names[service.name] for service in self._services)
            self.terminal.step(f"Starting {words}")
        for service in self._services:
            await fleet.start(service)
        postgres, redis = Postgres(instance=self.instance), Redis(instance=self.instance)
        if self.env.database_url is None:
            await self._until(postgres.is_ready, "PostgreSQL", "postgres", SERVICES_TIMEOUT_SECONDS)
            await to_thread(postgres.ensure_database)
        if self.env.redis_url is None:
            await self._until(redis.is_ready, "Redis", "redis", SERVICES_TIMEOUT_SECONDS)

    async def _start_platform(self, fleet: Fleet, listener: socket) -> None:
        platform = processes.platform_processes(self.env, listener.fileno())
        is_prepared = await to_thread(self._is_prepared)
        if not is_prepared:
            self.terminal.step("Preparing the database")
            facts = await self._prepare(fleet)
        self.terminal.step("Starting web, worker, builder and beat")
        for process in platform:
            await fleet.start(process)
        if is_prepared:
            facts = await self._prepare(fleet)
        await self._until(self._answers_ready, "The platform", "web", READY_TIMEOUT_SECONDS)
        await self._welcome(fleet, facts)

    def _is_prepared(self) -> bool:
        """Whether the processes may start on the database as it is; otherwise they must wait."""
        if self.env.redis_url is not None:
            heartbeat.clear(self.env.redis_url)
        if self.env.database_url is not None:
            return False
        return Postgres(instance=self.instance).comment() == f"{COMMENT}{code_fingerprint()}"

    async def _welcome(self, fleet: Fleet, facts: dict[str, str]) -> None:
        """Say how to get in; the first time the sample agent is deployed before that."""
        is_first = not self._sample_mark.exists()
        if is_first:
            self.terminal.step(f"Deploying the sample agent (watch it at {self.env.base_url})")
            await self._deploy_sample(fleet, facts)
        self.terminal.block(welcome.text(self.env, facts, self.terminal.seconds))
        if not is_first:
            await self._deploy_sample(fleet, facts)

    @property
    def _sample_mark(self) -> Path:
        """There once the sample agent was deployed from this data folder."""
        return self.instance.run_dir / "sample-deployed"

    async def _prepare(self, fleet: Fleet) -> dict[str, str]:
        """Migrate and make the first organization; what came of it is what is returned."""
        result = self.instance.run_dir / "prepared.json"
        result.unlink(missing_ok=True)
        await fleet.run(
            processes.one_off_process(
                self.instance, "bootstrap_instance", "bootstrap_instance", "--result", str(result)
            )
        )
        log = self.instance.log_dir / "bootstrap_instance.log"
        if not result.exists():
            raise CannotStart(f"the preparation ended early: see {log}.")
        facts: dict[str, str] = json.loads(result.read_text())
        result.unlink()
        if "error" in facts:
            raise CannotStart(f"{facts['error']} (see {log})")
        return facts

    async def _deploy_sample(self, fleet: Fleet, facts: dict[str, str]) -> None:
        """Safe to repeat: what is deployed already stays."""
        await fleet.run(
            processes.one_off_process(
                self.instance, "sample", "deploy_sample",
                "--organization", facts["organization"], "--wait", "--json",
            )
        )  # fmt: skip
        last = self._logs.last_lines("sample", 1)
        with suppress(ValueError, IndexError):
            if json.loads(last[0])["status"] == "DEPLOYED":
                self._sample_mark.touch()
                return
        self.terminal.trouble("sample", " ".join(last) or "was not deployed")

    def _answers_ready(self) -> bool:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.env.host, self.env.host)  # noqa: S104
        connection = http.client.HTTPConnection(host, self.env.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    async def _until(self, ready: Callable[[], bool], what: str, log: str, seconds: float) -> None:
        async def poll() -> None:
            while not await to_thread(ready):
                await asyncio.sleep(0.05)

        try:
            await asyncio.wait_for(poll(), seconds)
        except TimeoutError:
            raise CannotStart(
                f"{what} was not ready after {seconds:.0f} s: see "
                f"{self.instance.log_dir / log}.log."
            ) from None

    def _tell_of_death(self, process: Process, pause: float) -> None:
        if not pause:
            self.terminal.trouble(process.name, "ended by itself; starting it again")
            return
        self.terminal.trouble(process.name, f"keeps ending; next try in {pause:.0f} s. Its log:")
        for line in self._logs.last_lines(process.name):
            self.terminal.trouble(process.name, line)

    async def _wind_down(self, fleet: Fleet) -> None:
        services = {service.name for service in self._services}
        await fleet.stop([name for name in fleet.names if name not in services])
        await fleet.close()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send_circus_to(logs: Logs) -> None:
    """Circus and its event loop tell their story in a file, not at the terminal."""
    handler = logging.FileHandler(logs.folder / "supervisor.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    handler.addFilter(_tells_something)
    for name in ("circus", "tornado", "asyncio"):
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(handler)


def _tells_something(record: logging.LogRecord) -> bool:
    """Circus checks on a clock and complains when that falls into another command of ours."""
    return not (record.exc_info and isinstance(record.exc_info[1], ConflictError))
