"""Start a graph host: a revision's graphs in the sandbox, connected by a socket pair."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self
from uuid import UUID

from django.conf import settings

from apps.core import secrets
from apps.deployments import interpreters, networks, sandbox
from apps.deployments.build_dirs import RevisionDir
from apps.deployments.env_file import read_env_file
from apps.deployments.langgraph_json.server_config import ServerConfig
from apps.deployments.models import Revision
from apps.deployments.services import environment

PROGRAM = Path(__file__).resolve().parent.parent / "graph_host"


class LaunchFailed(Exception):
    """The host cannot be started; the text states the reason."""


@dataclass(slots=True)
class LaunchedHost:
    """A running host, owned by its launcher: `close` ends the process, socket and log pipe."""

    revision_id: UUID
    process: sandbox.SandboxedProcess
    socket: socket.socket
    """The worker's blocking end of the socket pair; EOF means that the host ended."""
    run_seconds: float | None = None
    """The maximum duration of a run; None if the revision sets none."""
    generation: int = 0
    """The deployment's `host_generation` at the start."""
    organization_id: UUID | None = None

    @property
    def logs(self) -> IO[bytes]:
        """The output pipe of the host; it must be read, because a full pipe blocks the host."""
        assert self.process.stdout is not None  # noqa: S101
        return self.process.stdout

    def close(self) -> None:
        """Kill the process tree and close the descriptors. Safe to repeat."""
        self.process.kill()
        self.socket.close()
        self.logs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        with contextlib.suppress(TimeoutError):
            self.process.wait(5)


def launch(revision_id: UUID, *, attempt: int | None = None) -> LaunchedHost:
    """Start a host for a built revision, or for the attempt that is building it.

    Returns once the sandbox runs; the first frame of the host is `hello`. Raises `LaunchFailed`.
    """
    revisions = Revision.objects.across_workspaces(reason="workers have only the revision id")
    related = ("deployment", "workspace__organization")
    revision = revisions.select_related(*related).filter(pk=revision_id).first()
    if revision is None:
        raise LaunchFailed("The revision no longer exists.")
    if attempt is None and revision.deployment.is_stopped:
        raise LaunchFailed("The deployment is stopped.")
    built_attempt = attempt if attempt is not None else revision.built_attempt
    if built_attempt is None:
        raise LaunchFailed("The revision has no finished build.")
    organization_number = revision.workspace.organization.number
    directory = RevisionDir.for_attempt(revision.pk, built_attempt, organization_number)
    if not directory.venv.is_dir():
        raise LaunchFailed("The build of the revision is no longer on this machine.")
    # Builds before this fact was stored have the version of `langgraph.json`, if any.
    python = revision.facts.get("python_version", (revision.config or {}).get("python_version"))
    try:
        interpreter = interpreters.select_interpreter(directory.python, python)
    except interpreters.InterpreterNotFound as error:
        raise LaunchFailed(str(error)) from None

    worker_end, host_end = socket.socketpair()
    try:
        process = sandbox.spawn(
            _policy(revision, directory, interpreter, is_build=attempt is not None),
            [
                *(str(directory.python), "-P", "-m", PROGRAM.name),
                *("--fd", str(host_end.fileno())),
                *("--config", str(directory.source / revision.config_path)),
                # Several times before the limit, so that the log shows where the import hangs.
                *("--dump-import-seconds", str(settings.GRAPH_IMPORT_TIMEOUT_SECONDS / 4)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[host_end.fileno()],
            allow_unsandboxed=settings.ALLOW_UNSANDBOXED_AGENTS,
        )
    except (sandbox.SandboxError, OSError) as error:
        worker_end.close()
        raise LaunchFailed(f"The sandbox of the agent could not be created: {error}") from error
    finally:
        host_end.close()
    server = ServerConfig.model_validate(revision.facts.get("variables") or {})
    return LaunchedHost(
        revision.pk,
        process,
        worker_end,
        server.run_seconds,
        revision.deployment.host_generation,
        revision.workspace.organization_id,
    )


def _policy(
    revision: Revision, directory: RevisionDir, interpreter: Path, *, is_build: bool
) -> sandbox.Policy:
    return sandbox.Policy(
        cwd=directory.source,
        env=host_environment(revision, directory),
        read_only=(directory.source, directory.venv, PROGRAM),
        owner=directory.owner,
        uid=directory.uid,
        python=interpreter,
        hostname=revision.deployment.slug[:63],
        network=networks.network(),
        egress=networks.agent_egress(),
        limits=sandbox.Limits(
            memory_bytes=settings.GRAPH_HOST_MEMORY_MB * sandbox.MIB,
            processes=settings.GRAPH_HOST_PROCESSES,
            is_background=is_build,
        ),
    )


def host_environment(revision: Revision, directory: RevisionDir) -> dict[str, str]:
    """Return the environment of a host: tracing, the author's variables, and the host's own.

    The author's variables override those of tracing, so that an agent can trace elsewhere. Those
    of the repository's `.env` file override none.
    """
    author_variables = environment.revision_variables(revision)
    path = [str(PROGRAM.parent), *filter(None, [author_variables.get("PYTHONPATH")])]
    variables = {
        "PATH": f"{directory.venv}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
        **tracing_variables(revision, switch=author_variables.get("LANGSMITH_TRACING")),
        **author_variables,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(path),
        "VIRTUAL_ENV": str(directory.venv),
    }
    config = revision.config or {}
    return {**read_env_file(directory, revision.config_path, config, variables), **variables}


def tracing_variables(revision: Revision, *, switch: str | None = None) -> dict[str, str]:
    """Return the tracing variables of the LangSmith SDK, under current and legacy names.

    The SDK adds `HOST_*` and the revision's number to the metadata of each run, which links the run
    to them. `switch` is the author's `LANGSMITH_TRACING`; the SDK reads the legacy name first.
    """
    deployment = revision.deployment
    if not deployment.tracing or deployment.ingest_secret is None:
        return {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
    key = secrets.decrypt(deployment.ingest_secret)
    common = {
        "ENDPOINT": f"{settings.INTERNAL_URL}/api/v1",
        "API_KEY": key,
        "PROJECT": deployment.name,
        "REVISION_ID": str(revision.number),
    }
    return {
        "LANGSMITH_TRACING": switch or "true",
        "LANGCHAIN_TRACING_V2": switch or "true",
        "LANGSMITH_HOST_PROJECT_NAME": deployment.name,
        "LANGSMITH_HOST_REVISION_ID": str(revision.pk),
        **{f"LANGSMITH_{name}": value for name, value in common.items()},
        **{f"LANGCHAIN_{name}": value for name, value in common.items()},
    }
