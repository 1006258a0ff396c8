"""Start the graph host process of a revision."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, NamedTuple, Protocol, cast
from uuid import UUID

from django.db import connections

from apps.deployments import hosts


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
class StartingHost:
    """A starting graph host. Its first frame is `hello`; `stdout` includes its stderr."""

    process: HostProcess
    socket: socket.socket
    run_seconds: float | None = None
    """Time limit of a run of this revision; None for the installation's limit."""
    generation: int = 0
    """The deployment's `host_generation` at the start."""
    organization_id: UUID | None = None


Launcher = Callable[[UUID], StartingHost]


def launch(revision_id: UUID) -> StartingHost:
    """Start the host of a revision in its sandbox. Blocks; raises if it cannot be started."""
    try:
        return cast("StartingHost", hosts.launch(revision_id))
    finally:
        # Hosts start rarely, so do not keep this thread's database connection open.
        connections.close_all()
