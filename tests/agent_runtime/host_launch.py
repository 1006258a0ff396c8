"""Starts graph hosts without a sandbox."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import apps.graph_host
from apps.agent_runtime.hosts.launch import StartingHost
from tests.agent_runtime.host_fork_server import HostForkServer

HOST_PACKAGE = Path(apps.graph_host.__file__).parent


def launch_unconfined(
    project: Path, *, python: str = sys.executable, env: Mapping[str, str] | None = None
) -> StartingHost:
    """Start a host for a project folder without a sandbox.

    Hosts with an interpreter or variables of their own are new processes, others are forked.
    """
    here, there = socket.socketpair()
    if python == sys.executable and not env:
        with there:
            return StartingHost(_fork_server().fork_host(project, there), here)
    process = subprocess.Popen(
        [python, "-P", "-m", HOST_PACKAGE.name, "--fd", str(there.fileno())],
        cwd=project,
        env={**_environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[there.fileno()],
    )
    there.close()
    return StartingHost(process, here)


@functools.cache
def _fork_server() -> HostForkServer:
    server = HostForkServer(_environment())
    atexit.register(server.stop)
    return server


def _environment() -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "PYTHONPATH": str(_package_folder()),
        "LANGSMITH_TRACING": "false",
    }


@functools.cache
def _package_folder() -> Path:
    """A temporary folder that contains only the host's package; deleted when this process exits."""
    folder = Path(tempfile.mkdtemp(prefix="graph-host-"))
    (folder / HOST_PACKAGE.name).symlink_to(HOST_PACKAGE)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
