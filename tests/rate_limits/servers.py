"""Web processes of one region, as many as wanted behind one socket, on the tests' own database."""

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
from tests.rate_limits.conftest import forget_counts

NOON = 1_800_000_000.0


@dataclass
class Server:
    """Where it is, and the clock that it counts by."""

    port: int
    clock: Clock
    redis_url: str
    processes: list[psutil.Process]

    def connect(self, address: str = "127.0.0.1") -> HTTPConnection:
        """A connection from one of this machine's addresses."""
        return HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(address, 0))

    def begin_anew(self) -> None:
        forget_counts(self.redis_url)
        self.clock.set(NOON)


@contextmanager
def server(folder: Path, region: str, *, processes: int = 1, **variables: str) -> Iterator[Server]:
    """Start the processes and wait until one answers; they end with the block."""
    clock = Clock(folder / f"clock-{region}", NOON)
    redis_url = _redis_of(region)
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
        started = [
            subprocess.Popen(
                [*command, str(listener.fileno())],
                cwd=BASE_DIR,
                env=environment,
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            for _ in range(processes)
        ]
    web_server = Server(
        listener.getsockname()[1], clock, redis_url, [psutil.Process(one.pid) for one in started]
    )
    try:
        wait_until(lambda: _all_serve(started, web_server), f"the web of {region}")
        yield web_server
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(30)
        listener.close()


def _all_serve(started: list[subprocess.Popen[bytes]], web_server: Server) -> bool:
    """Whether each process has begun to take connections from the socket."""
    assert all(one.poll() is None for one in started), "a web process ended"
    connections = [web_server.connect() for _ in range(4 * len(started))]
    try:
        for one in connections:
            one.timeout = 2
            one.request("GET", "/healthz")
            if one.getresponse().read() != b'{"ok":true}':
                return False
        return len(serving(web_server)) == len(started)
    except (OSError, HTTPException):
        return False
    finally:
        for one in connections:
            one.close()


def serving(web_server: Server) -> set[int]:
    """The processes that hold a connection of a client."""
    return {
        process.pid
        for process in web_server.processes
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_ESTABLISHED and one.laddr.port == web_server.port
    }


def _database_url() -> str:
    parts = urlsplit(os.environ["DATABASE_URL"])
    # `geturl` would drop an empty host; the socket's folder is in the query.
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{connection.settings_dict['NAME']}{query}"


def _redis_of(region: str) -> str:
    """A database of the tests' Redis that no worker uses: regions share no counters."""
    url = os.environ["REDIS_URL"]
    database = {"us": 15, "eu": 14}[region]
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix://{parts.path}?db={database}"
    return parts._replace(path=f"/{database}").geturl()
