"""Start and stop of one instance: services, migrations, platform processes."""

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

from apps.core.instance import COMMENT, code_fingerprint
from apps.core.observability import readiness
from config.embedded.launch import CannotStart
from config.embedded.postgres import Postgres
from config.embedded.redis import Redis
from config.env import Env
from config.supervisor import processes, welcome
from config.supervisor.fleet import Fleet, kill_leftovers, set_child_subreaper
from config.supervisor.forks import ForkServerClient
from config.supervisor.instance_lock import (
    claim_data_folder,
    open_listener,
    open_playground_listener,
)
from config.supervisor.logs import Logs
from config.supervisor.processes import Process
from config.supervisor.terminal import Terminal

logger = logging.getLogger(__name__)

SERVICES_TIMEOUT_SECONDS = 120  # PostgreSQL may have a crash to recover from
WATCH_INTERVAL_SECONDS = 1


class InstanceLifecycle:
    """One run of an instance: `run` returns after a signal."""

    def __init__(
        self, env: Env, *, services_only: bool = False, companion: int | None = None
    ) -> None:
        """The end of the `companion` process stops the instance like a signal."""
        self.env = env
        self.instance = env.instance
        self.terminal = Terminal()
        self._services_only = services_only
        self._companion = psutil.Process(companion) if companion else None
        self._services: list[Process] = []

    async def run(self) -> None:
        """Start everything, wait for a signal, stop everything.

        Raises `CannotStart` with a message for the terminal.
        """
        # Both descriptors are held until the end of this process.
        self._lock = claim_data_folder(self.instance)
        self._listener = self._playground_listener = None
        if not self._services_only:
            self._listener = open_listener(self.env.host, self.env.port)
            if self.env.starts_playground:
                path = self.instance.playground_socket
                self._playground_listener = open_playground_listener(path)
            self.instance.port_file.write_text(str(self.env.port))
        self._logs = Logs(self.instance.log_dir, self.terminal)
        if ended := kill_leftovers(str(self.instance.data_dir)):
            self.terminal.step(f"Stopped {ended} processes that an earlier start left behind")
        # Metrics start from zero.
        shutil.rmtree(self.instance.run_dir / "metrics", ignore_errors=True)
        self._services = processes.service_processes(self.env)
        for service in self._services:
            if service.before_spawn is not None:
                service.before_spawn()
        _log_circus_to(self._logs)
        set_child_subreaper()

        self._fork_server = ForkServerClient(processes.fork_socket(self.instance))
        fleet = Fleet(processes.environment(self.env), self._fork_server, self._report_restart)
        self._run_task = asyncio.create_task(self._run_processes(fleet))
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            get_running_loop().add_signal_handler(signal_number, self._run_task.cancel)
        try:
            await self._run_task
        except CancelledError:
            self.terminal.step("Stopping")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await self._stop_all(fleet)

    async def _run_processes(self, fleet: Fleet) -> None:
        await fleet.open()
        async with TaskGroup() as tasks:
            tasks.create_task(self._watch(fleet))
            if not self._services_only:
                # It imports while the servers start.
                await fleet.start(processes.fork_server_process(self.instance))
            await self._start_services(fleet)
            if self._listener is None:
                self.terminal.step("Ready")
            else:
                await self._start_platform(fleet, self._listener)

    async def _watch(self, fleet: Fleet) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            fleet.kill_orphans()
            self._logs.poll()
            if self._companion is not None and not _is_running(self._companion):
                self._run_task.cancel()

    async def _start_services(self, fleet: Fleet) -> None:
        names = {"postgres": "PostgreSQL", "redis": "Redis"}
        if self._services:
            labels = " and ".join(names[service.name] for service in self._services)
            self.terminal.step(f"Starting {labels}")
        for service in self._services:
            await fleet.start(service)
        postgres, redis = Postgres(instance=self.instance), Redis(instance=self.instance)
        if self.env.database_url is None:
            await self._wait_until_ready(
                postgres.is_ready, "PostgreSQL", "postgres", SERVICES_TIMEOUT_SECONDS
            )
            await to_thread(postgres.ensure_database)
        if self.env.redis_url is None:
            await self._wait_until_ready(redis.is_ready, "Redis", "redis", SERVICES_TIMEOUT_SECONDS)

    async def _start_platform(self, fleet: Fleet, listener: socket) -> None:
        playground = self._playground_listener
        platform = processes.platform_processes(
            self.env, listener.fileno(), None if playground is None else playground.fileno()
        )
        await self._wait_until_ready(
            self._fork_server.is_ready,
            "The platform's code",
            "fork-server",
            self.env.start_timeout_seconds,
        )
        if self.env.redis_url is not None:
            await to_thread(readiness.clear_heartbeats, self.env.redis_url)
        if not await to_thread(self._is_prepared):
            self.terminal.step("Preparing the database")
        # Before the web processes, which list the static files when they start.
        facts = await self._prepare(fleet)
        self.terminal.step("Starting web, worker, builder and beat")
        for process in platform:
            await fleet.start(process)
        await self._wait_until_ready(
            self._is_web_ready, "The platform", "web", self.env.start_timeout_seconds
        )
        await self._welcome(fleet, facts)

    def _is_prepared(self) -> bool:
        """Return whether the database is known to be migrated."""
        if self.env.database_url is not None:
            return False
        return Postgres(instance=self.instance).comment() == f"{COMMENT}{code_fingerprint()}"

    async def _welcome(self, fleet: Fleet, facts: dict[str, str]) -> None:
        """Print the addresses; on the first start, deploy the sample agent before that."""
        deploys = self.env.sample_agent
        is_first = deploys and not self._sample_mark.exists()
        if is_first:
            self.terminal.step(f"Deploying the sample agent (progress at {self.env.base_url})")
            await self._deploy_sample(fleet, facts)
        self.terminal.block(welcome.build_summary(self.env, facts, self.terminal.seconds))
        if deploys and not is_first:
            await self._deploy_sample(fleet, facts)

    @property
    def _sample_mark(self) -> Path:
        """Marker file: the sample agent was deployed from this data folder."""
        return self.instance.run_dir / "sample-deployed"

    async def _prepare(self, fleet: Fleet) -> dict[str, str]:
        """Migrate, create the first organization and return its facts for the terminal."""
        result = self.instance.run_dir / "bootstrap_instance.json"
        result.unlink(missing_ok=True)
        await fleet.run(
            processes.one_off_process(
                self.instance, "bootstrap_instance", "bootstrap_instance", "--result", str(result)
            )
        )
        log = self.instance.log_dir / "bootstrap_instance.log"
        if not result.exists():
            raise CannotStart(f"the bootstrap ended without a result: see {log}.")
        facts: dict[str, str] = json.loads(result.read_text())
        result.unlink()
        if "error" in facts:
            raise CannotStart(f"{facts['error']} (see {log})")
        return facts

    async def _deploy_sample(self, fleet: Fleet, facts: dict[str, str]) -> None:
        """Deploy the sample agent unless it is deployed."""
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
        self.terminal.trouble("sample", " ".join(last) or "the sample agent was not deployed")

    def _is_web_ready(self) -> bool:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.env.host, self.env.host)  # noqa: S104
        connection = http.client.HTTPConnection(host, self.env.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    async def _wait_until_ready(
        self, is_ready: Callable[[], bool], name: str, log: str, seconds: float
    ) -> None:
        async def poll() -> None:
            while not await to_thread(is_ready):
                await asyncio.sleep(0.05)

        try:
            await asyncio.wait_for(poll(), seconds)
        except TimeoutError:
            raise CannotStart(
                f"{name} was not ready after {seconds:.0f} s: see "
                f"{self.instance.log_dir / log}.log."
            ) from None

    def _report_restart(self, process: Process, delay: float) -> None:
        if not delay:
            logger.warning("%s exited; restarting it", process.name)
            self.terminal.trouble(process.name, "exited; restarting it")
            return
        logger.warning("%s keeps exiting; next restart in %.0f s", process.name, delay)
        self.terminal.trouble(
            process.name, f"keeps exiting; next restart in {delay:.0f} s. Its log:"
        )
        for line in self._logs.last_lines(process.name):
            self.terminal.trouble(process.name, line)

    async def _stop_all(self, fleet: Fleet) -> None:
        services = {service.name for service in self._services}
        await fleet.stop([name for name in fleet.names if name not in services])
        await fleet.close()


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _log_circus_to(logs: Logs) -> None:
    """Write restarts and the log of circus and its event loop to a file."""
    handler = logging.FileHandler(logs.folder / "supervisor.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    handler.addFilter(_is_relevant)
    for name in (__name__, "circus", "tornado", "asyncio"):
        source = logging.getLogger(name)
        source.propagate = False
        source.setLevel(logging.WARNING)
        source.addHandler(handler)


def _is_relevant(record: logging.LogRecord) -> bool:
    """Drop conflicts of circus' periodic check with a command of the supervisor."""
    return not (record.exc_info and isinstance(record.exc_info[1], ConflictError))
