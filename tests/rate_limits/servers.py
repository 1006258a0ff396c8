"""Web processes of one region that share a socket and use the database of the tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from django.db import connection

from config.env import BASE_DIR
from tests.installation import wait_until
from tests.rate_limits.clocked_web import FILE, Clock
from tests.rate_limits.conftest import delete_counts

NOON = 4_000_000_000.0


@dataclass
class Server:
    """The port, clock, Redis and processes of a web server."""

    port: int
    clock: Clock
    redis_url: str
    first: psutil.Process
    """The process that forks the others."""

    @property
    def processes(self) -> list[psutil.Process]:
        return [self.first, *self.first.children()]

    def connect(self, address: str = "127.0.0.1") -> HTTPConnection:
        """Connect from one of the loopback addresses."""
        return HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(address, 0))

    def reset(self) -> None:
        delete_counts(self.redis_url)
        self.clock.set(NOON)


@contextmanager
def run_server(
    folder: Path, region: str, *, processes: int = 1, **variables: str
) -> Iterator[Server]:
    """Start the processes and wait until all serve; they end with the block."""
    clock = Clock(folder / f"clock-{region}", NOON)
    redis_url = _redis_url(region)
    environment = {
        **os.environ,
        "DATABASE_URL": _database_url(),
        "REDIS_URL": redis_url,
        "REGION": region,
        "RATE_LIMIT_FACTOR": "1",
        "WEB_PROCESSES": str(processes),
        FILE: str(folder / f"clock-{region}"),
        **variables,
    }
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    listener.set_inheritable(True)
    command = [sys.executable, "-m", "tests.rate_limits.clocked_web", "--fd"]
    with (folder / f"web-{region}.log").open("wb") as log:
        first = subprocess.Popen(
            [*command, str(listener.fileno())],
            cwd=BASE_DIR,
            env=environment,
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    web_server = Server(listener.getsockname()[1], clock, redis_url, psutil.Process(first.pid))
    try:
        wait_until(lambda: _all_serve(first, processes, web_server), f"the web of {region}")
        yield web_server
    finally:
        started = web_server.processes
        for process in started:
            process.terminate()
        first.wait(120)
        psutil.wait_procs(started, timeout=120)
        listener.close()


def _all_serve(first: subprocess.Popen[bytes], processes: int, web_server: Server) -> bool:
    """Whether each process accepts connections from the socket."""
    assert first.poll() is None, "a web process ended"
    if len(web_server.processes) < processes:
        return False
    connections = [web_server.connect() for _ in range(4 * processes)]
    try:
        for process in connections:
            process.timeout = 2
            process.request("GET", "/healthz")
            if process.getresponse().read() != b'{"ok":true}':
                return False
        return len(list_serving_pids(web_server)) == processes
    except (OSError, HTTPException):
        return False
    finally:
        for process in connections:
            process.close()


def list_serving_pids(web_server: Server) -> set[int]:
    """Return the ids of the processes with a client connection."""
    return {
        process.pid
        for process in web_server.processes
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == web_server.port
    }


def _database_url() -> str:
    parts = urlsplit(os.environ["DATABASE_URL"])
    # `geturl` would drop an empty host; the socket's folder is in the query.
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{connection.settings_dict['NAME']}{query}"


def _redis_url(region: str) -> str:
    """Return a Redis database for the region that no test worker uses."""
    url = os.environ["REDIS_URL"]
    database = {"us": 15, "eu": 14}[region]
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}?db={database}"
    return parts._replace(path=f"/{database}").geturl()
