"""Starting a graph host: one revision's graphs in the sandbox, behind a socket pair."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from uuid import UUID

from django.conf import settings

from apps.core import secrets
from apps.deployments import sandbox
from apps.deployments.build_dirs import Workplace
from apps.deployments.builds import interpreters
from apps.deployments.langgraph_json.variables import Facts
from apps.deployments.models import Deployment, Revision
from apps.deployments.services import environment

PROGRAM = Path(__file__).resolve().parent.parent / "graph_host"


class NotLaunched(Exception):
    """No host could be started, with the reason in words."""


@dataclass(slots=True)
class LaunchedHost:
    """A running host. Who launched it owns all three: `close` ends the process and both ends."""

    revision_id: UUID
    process: sandbox.SandboxedProcess
    socket: socket.socket
    """The worker's end of the socket pair, blocking; its end is the host's end."""
    run_seconds: float | None = None
    """How long a run may take, where the revision says so."""

    @property
    def logs(self) -> IO[bytes]:
        """A pipe with all that the host prints; unread, it holds the host up when it is full."""
        assert self.process.stdout is not None  # noqa: S101
        return self.process.stdout

    def close(self) -> None:
        """End the whole tree at once. Repeating is safe."""
        self.process.kill()
        self.socket.close()
        self.logs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        with contextlib.suppress(TimeoutError):
            self.process.wait(5)


def launch(revision_id: UUID, *, attempt: int | None = None) -> LaunchedHost:
    """Start a host for a revision that is built, or for the attempt that is building it.

    Returns when its sandbox stands; its first frame is `hello`. Raises `NotLaunched`.
    """
    revisions = Revision.objects.across_workspaces(reason="workers know a revision by its id")
    related = ("deployment", "workspace__organization")
    revision = revisions.select_related(*related).filter(pk=revision_id).first()
    if revision is None:
        raise NotLaunched("The revision is gone.")
    built = attempt if attempt is not None else revision.artefact
    if built is None:
        raise NotLaunched("The revision was never built.")
    place = Workplace.of(revision.pk, built, revision.workspace.organization.number)
    if not place.venv.is_dir():
        raise NotLaunched("What was built for the revision is not on this machine any more.")
    config = revision.config or {}
    try:
        interpreter = interpreters.of(place.python, config.get("python_version"))
    except interpreters.NoInterpreter as error:
        raise NotLaunched(str(error)) from None

    ours, theirs = socket.socketpair()
    try:
        process = sandbox.spawn(
            _policy(revision, place, interpreter),
            [
                *(str(place.python), "-P", "-m", PROGRAM.name),
                *("--fd", str(theirs.fileno())),
                *("--config", str(place.source / revision.config_path)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            allow_unsandboxed=settings.ALLOW_UNSANDBOXED_AGENTS,
        )
    except (sandbox.SandboxError, OSError) as error:
        ours.close()
        raise NotLaunched(f"The sandbox of the agent could not be made: {error}") from error
    finally:
        theirs.close()
    facts = Facts.model_validate(revision.facts.get("variables") or {})
    return LaunchedHost(revision.pk, process, ours, facts.run_seconds)


def _policy(revision: Revision, place: Workplace, interpreter: Path) -> sandbox.Policy:
    return sandbox.Policy(
        cwd=place.source,
        env=variables(revision, place),
        read_only=(place.source, place.venv, PROGRAM),
        uid=place.uid,
        python=interpreter,
        hostname=revision.deployment.slug[:63],
        network=sandbox.Network.SHARED,
        limits=sandbox.Limits(
            memory_bytes=settings.GRAPH_HOST_MEMORY_MB * sandbox.MIB,
            processes=settings.GRAPH_HOST_PROCESSES,
        ),
    )


def variables(revision: Revision, place: Workplace) -> dict[str, str]:
    """The whole environment of a host: tracing, the author's variables, and what the host needs.

    The author's win over tracing's, so that an agent may trace elsewhere or not at all.
    """
    own = environment.of_revision(revision)
    path = [str(PROGRAM.parent), *filter(None, [own.get("PYTHONPATH")])]
    return {
        "PATH": f"{place.venv}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
        **tracing_variables(revision.deployment, switch=own.get("LANGSMITH_TRACING")),
        **own,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(path),
        "VIRTUAL_ENV": str(place.venv),
    }


def tracing_variables(deployment: Deployment, *, switch: str | None = None) -> dict[str, str]:
    """What LangSmith's SDK reads, under its names of today and of the time before.

    `switch` is the author's own `LANGSMITH_TRACING`; the SDK looks at the older name first.
    """
    if not deployment.tracing or deployment.ingest_secret is None:
        return {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
    key = secrets.decrypt(deployment.ingest_secret)
    common = {
        "ENDPOINT": f"{settings.INTERNAL_URL}/api/v1",
        "API_KEY": key,
        "PROJECT": deployment.name,
    }
    return {
        "LANGSMITH_TRACING": switch or "true",
        "LANGCHAIN_TRACING_V2": switch or "true",
        **{f"LANGSMITH_{name}": value for name, value in common.items()},
        **{f"LANGCHAIN_{name}": value for name, value in common.items()},
    }
