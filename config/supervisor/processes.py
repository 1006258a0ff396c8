"""The definitions of an installation's processes."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

from apps.core.instance import Instance
from config.embedded.launch import ParentBoundProcess
from config.embedded.postgres import Postgres
from config.embedded.redis import Redis
from config.env import BASE_DIR, Env
from config.fork_server import ForkRequest

# Environment variable of every process of an instance: a later start finds the processes that a
# `kill -9` of the supervisor left behind.
MARK = "SLIPWAY_INSTANCE"


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process: its command, stop signal and grace period.

    With `fork_request` the fork server starts it, and the command only if that server cannot.
    """

    name: str
    command: Sequence[str]
    fork_request: ForkRequest | None = None
    stop_signal: Signals = SIGTERM
    grace_seconds: float = 8
    inherits_listener: bool = False
    respawn: bool = True
    before_spawn: Callable[[], None] | None = None

    @property
    def shell_words(self) -> tuple[str, list[str]]:
        return shlex.quote(self.command[0]), list(self.command[1:])


def environment(env: Env) -> dict[str, str]:
    """Return the variables that are added to the supervisor's environment."""
    return {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PORT": str(env.port),
        "DATA_DIR": str(env.instance.data_dir),
        MARK: str(env.instance.data_dir),
        "PYTHONUNBUFFERED": "1",
        # By default each allocating thread gets an arena of 64 MB.
        "MALLOC_ARENA_MAX": "2",
    }


def service_processes(env: Env) -> list[Process]:
    """Return the embedded servers that no URL replaces."""
    servers = []
    instance = env.instance
    if env.database_url is None:
        postgres = Postgres(instance=instance, connections=env.database_connections)
        servers.append(
            Process(
                name="postgres",
                command=postgres.command(instance.log_dir / "postgres.log"),
                stop_signal=SIGINT,  # its "fast" shutdown: sessions are ended, nothing is lost
                grace_seconds=30,
                before_spawn=postgres.prepare,
            )
        )
    if env.redis_url is None:
        server = Redis(instance=instance, memory_mb=env.redis_memory_mb)
        servers.append(
            Process(
                name="redis",
                command=server.command(instance.log_dir / "redis.log"),
                before_spawn=server.prepare,
            )
        )
    return servers


def fork_server_process(instance: Instance) -> Process:
    """Return the process that imports the platform and forks the others."""
    arguments = ("-m", "config.fork_server", "--socket", str(fork_socket(instance)))
    return Process(name="fork-server", command=_command(instance, "fork-server", arguments))


def fork_socket(instance: Instance) -> Path:
    return instance.run_dir / "fork-server.sock"


def platform_processes(env: Env, listener: int, playground: int | None) -> list[Process]:
    """Web, playground, workers and beat; `playground` is the listener of the playground's own."""
    instance = env.instance
    queues = {"worker": ("runs,periodic", env.worker_threads)}
    queues["builder"] = ("builds", env.build_threads)
    count = 0 if playground is None else env.playground_processes
    return [
        *(_web(instance, listener, index) for index in range(env.web_processes)),
        *(_playground(instance, playground, index) for index in range(count)),
        *(
            _celery(
                instance, role, "worker", "--hostname", f"{role}@%h", "--queues", names,
                "--pool", "threads", "--concurrency", str(threads),
                "--without-gossip", "--without-mingle", "--without-heartbeat",
            )
            for role, (names, threads) in queues.items()
        ),
        _celery(instance, "beat", "beat", "--pidfile="),
    ]  # fmt: skip


def _web(instance: Instance, listener: int, index: int) -> Process:
    name = f"web-{index + 1}" if index else "web"
    arguments = ("-m", "config.web", "--fd", str(listener), "--index", str(index))
    return _python_process(instance, name, arguments, listener=listener)


def _playground(instance: Instance, listener: int | None, index: int) -> Process:
    name = f"playground-{index + 1}" if index else "playground"
    arguments = ("-m", "config.web", "--playground", "--fd", str(listener))
    return _python_process(instance, name, arguments, listener=listener)


def _celery(instance: Instance, name: str, *arguments: str) -> Process:
    return _python_process(
        instance, name, ("-m", "celery", "--app", "config", "--quiet", *arguments)
    )


def one_off_process(instance: Instance, name: str, *arguments: str) -> Process:
    """Return a process that runs a management command once."""
    return _python_process(instance, name, (str(BASE_DIR / "manage.py"), *arguments), respawn=False)


def _python_process(
    instance: Instance,
    name: str,
    arguments: Sequence[str],
    *,
    listener: int | None = None,
    respawn: bool = True,
) -> Process:
    request = ForkRequest(
        title=f"slipway {name}: {' '.join(arguments)}",
        program=list(arguments),
        log=str(_log(instance, name)),
        descriptor=listener,
    )
    return Process(
        name=name,
        command=_command(instance, name, arguments),
        fork_request=request,
        inherits_listener=listener is not None,
        respawn=respawn,
    )


def _command(instance: Instance, name: str, arguments: Sequence[str]) -> list[str]:
    process = ParentBoundProcess(log=_log(instance, name))
    return process.command([sys.executable, *arguments])


def _log(instance: Instance, name: str) -> Path:
    return instance.log_dir / f"{name}.log"
