"""Start the graph host process of a revision."""

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
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast
from uuid import UUID

from django.db import connections

from apps.deployments import hosts

HOST_PACKAGE = Path(__file__).resolve().parents[2] / "graph_host"


class RevisionRef(NamedTuple):
    """A revision with its deployment and workspace."""

    revision_id: UUID
    deployment_id: UUID
    workspace_id: UUID


class HostProcess(Protocol):
    """The process of a graph host: a subprocess, or a sandbox around one."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[Any] | None: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...


@dataclass(slots=True)
class LaunchedHost:
    """A starting graph host. Its first frame is `hello`; `stdout` includes its stderr."""

    process: HostProcess
    socket: socket.socket
    run_seconds: float | None = None
    """Time limit of a run of this revision; None for the installation's limit."""


Launcher = Callable[[UUID], LaunchedHost]


def launch(revision_id: UUID) -> LaunchedHost:
    """Start the host of a revision in its sandbox. Blocks; raises if it cannot be started."""
    try:
        return cast("LaunchedHost", hosts.launch(revision_id))
    finally:
        # Hosts start rarely, so do not keep this thread's database connection open.
        connections.close_all()


def launch_unconfined(
    project: Path, *, python: str = sys.executable, env: Mapping[str, str] | None = None
) -> LaunchedHost:
    """Start a host for a project folder without a sandbox. Only for tests and benchmarks."""
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
    return LaunchedHost(process, here)


@functools.cache
def _package_folder() -> Path:
    """A temporary folder that contains only the host's package; deleted when this process exits."""
    folder = Path(tempfile.mkdtemp(prefix="graph-host-"))
    (folder / HOST_PACKAGE.name).symlink_to(HOST_PACKAGE)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
