"""The processes of one installation, as data."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

from apps.core.instance_paths import Instance
from config.embedded.launch import ParentBoundProcess
from config.embedded.postgres import Postgres
from config.embedded.redis import Redis
from config.env import BASE_DIR, Env

# Set in every process that an instance starts, so that a later start can tell which ones a
# `kill -9` of the supervisor left behind.
MARK = "SLIPWAY_INSTANCE"


@dataclass(frozen=True, kw_only=True)
class Process:
    """One entry: how it is started, how it is asked to stop and how long it may take."""

    name: str
    command: Sequence[str]
    stop_signal: Signals = SIGTERM
    grace_seconds: float = 8
    inherits_listener: bool = False
    respawn: bool = True
    before_spawn: Callable[[], None] | None = None

    @property
    def shell_words(self) -> tuple[str, list[str]]:
        return shlex.quote(self.command[0]), list(self.command[1:])


def environment(env: Env) -> dict[str, str]:
    """What every process gets besides the environment of the supervisor itself."""
    return {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PORT": str(env.port),
        "DATA_DIR": str(env.instance.data_dir),
        MARK: str(env.instance.data_dir),
        "PYTHONUNBUFFERED": "1",
        # Threads that allocate would otherwise get an arena of 64 MB each.
        "MALLOC_ARENA_MAX": "2",
    }


def service_processes(env: Env) -> list[Process]:
    """The embedded servers that no URL replaces; their folders are made by the way."""
    found = []
    instance = env.instance
    if env.database_url is None:
        postgres = Postgres(instance=instance, connections=env.database_connections)
        found.append(
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
        found.append(
            Process(
                name="redis",
                command=server.command(instance.log_dir / "redis.log"),
                before_spawn=server.prepare,
            )
        )
    return found


def platform_processes(env: Env, listener: int) -> list[Process]:
    """Web, workers and beat."""
    instance = env.instance
    queues = {"worker": ("runs,periodic", env.worker_threads)}
    queues["builder"] = ("builds", env.build_threads)
    return [
        *(_web(instance, listener, place) for place in range(env.web_processes)),
        *(
            Process(
                name=role,
                command=_celery(
                    instance, role, "worker", "--hostname", f"{role}@%h", "--queues", names,
                    "--pool", "threads", "--concurrency", str(threads),
                    "--without-gossip", "--without-mingle", "--without-heartbeat",
                ),
            )
            for role, (names, threads) in queues.items()
        ),
        Process(name="beat", command=_celery(instance, "beat", "beat", "--pidfile=")),
    ]  # fmt: skip


def _web(instance: Instance, listener: int, place: int) -> Process:
    name = f"web-{place + 1}" if place else "web"
    words = ("config.web", "--fd", str(listener), "--place", str(place))
    return Process(name=name, command=_python(instance, name, *words), inherits_listener=True)


def one_off_process(instance: Instance, name: str, *arguments: str) -> Process:
    """A management command that runs once."""
    command = _parent_bound(instance, name, str(BASE_DIR / "manage.py"), *arguments)
    return Process(name=name, command=command, respawn=False)


def _celery(instance: Instance, name: str, *arguments: str) -> list[str]:
    return _python(instance, name, "celery", "--app", "config", "--quiet", *arguments)


def _python(instance: Instance, name: str, module: str, *arguments: str) -> list[str]:
    return _parent_bound(instance, name, "-m", module, *arguments)


def _parent_bound(instance: Instance, name: str, *arguments: str) -> list[str]:
    log: Path = instance.log_dir / f"{name}.log"
    return ParentBoundProcess(log=log).command([sys.executable, *arguments])
