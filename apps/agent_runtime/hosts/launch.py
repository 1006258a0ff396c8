"""Starting the graph host of a revision, whichever way this installation does it."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, cast
from uuid import UUID

from django.db import connections

HOST_PACKAGE = Path(__file__).resolve().parents[2] / "graph_host"


class HostProcess(Protocol):
    """What the engine needs of a process: a subprocess, or a sandbox around one."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[Any] | None: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


@dataclass(slots=True)
class Launched:
    """A graph host on its way up; its first frame is `hello`. It prints everything to `stdout`."""

    process: HostProcess
    socket: socket.socket
    run_seconds: float | None = None
    """How long a run of this revision may take; None: as long as any."""


Launcher = Callable[[UUID], Launched]


def launch(revision_id: UUID) -> Launched:
    """Start the host of a revision in its sandbox. Blocks; raises when it cannot be started."""
    hosts = import_module("apps.deployments.hosts")
    try:
        return cast("Launched", hosts.launch(revision_id))
    finally:
        # Hosts start seldom; their thread's database connection would be idle for ever.
        connections.close_all()


def launch_unconfined(
    project: Path, *, python: str = sys.executable, env: Mapping[str, str] | None = None
) -> Launched:
    """Start a host for a folder without any sandbox: for tests and measurements, on own code."""
    here, there = socket.socketpair()
    process = subprocess.Popen(
        [python, "-P", "-m", HOST_PACKAGE.name, "--fd", str(there.fileno())],
        cwd=project,
        env={
            "PATH": os.defpath,
            "PYTHONPATH": str(_package_folder()),
            "LANGSMITH_TRACING": "false",
            **(env or {}),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[there.fileno()],
    )
    there.close()
    return Launched(process, here)


@functools.cache
def _package_folder() -> Path:
    """A folder with the host's package alone; it goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="graph-host-"))
    (folder / HOST_PACKAGE.name).symlink_to(HOST_PACKAGE)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
