"""Run one command of a build in the sandbox and log its output."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from apps.deployments import networks, sandbox
from apps.deployments.builds.build_context import TICK_SECONDS, BuildContext, BuildFailed

TAIL_LINES = 60
_MAX_LINE_BYTES = 64 * 1024
_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code of a command and its last `tail_lines` lines of output."""

    code: int
    tail: list[str]


def build_policy(
    context: BuildContext,
    *,
    cwd: Path,
    env: Mapping[str, str],
    read_only: Sequence[Path | sandbox.Bind] = (),
    writable: Sequence[Path | sandbox.Bind] = (),
    python: Path | None = None,
    disk_mb: int | None = None,
    egress: sandbox.Egress,
) -> sandbox.Policy:
    """Return the policy of a build step: only the named folders and the given egress."""
    return sandbox.Policy(
        cwd=cwd,
        env=dict(env),
        read_only=tuple(read_only),
        writable=tuple(writable),
        owner=context.directory.owner,
        uid=context.directory.uid,
        python=python,
        hostname="build",
        network=networks.network(),
        egress=egress,
        limits=sandbox.Limits(
            memory_bytes=settings.BUILD_MEMORY_MB * sandbox.MIB,
            processes=512,
            open_files=4096,
            temporary_bytes=512 * sandbox.MIB,
            disk_bytes=(disk_mb or settings.BUILD_DISK_MB) * sandbox.MIB,
            is_background=True,
        ),
    )


def run_command(
    context: BuildContext,
    policy: sandbox.Policy,
    argv: Sequence[str],
    *,
    show: Callable[[str], bool] = lambda _: True,
    tail_lines: int = TAIL_LINES,
) -> CommandResult:
    """Run a command to its end. Lines for which `show` is false are not logged.

    Raises `BuildFailed` if a limit stopped it, and the errors of `BuildContext.tick`.
    """
    tail: deque[str] = deque(maxlen=tail_lines)

    def on_line(line: str) -> None:
        tail.append(line)
        if show(line):
            context.log.write(line)

    read_fd, write_fd = os.pipe()
    try:
        try:
            process = sandbox.spawn(
                policy,
                argv,
                stdout=write_fd,
                stderr=subprocess.STDOUT,
                allow_unsandboxed=settings.ALLOW_UNSANDBOXED_AGENTS,
            )
        finally:
            os.close(write_fd)
        with process:
            _read_output(context, process, read_fd, on_line)
            code = _wait_for_exit(context, process)
            if (limit := process.stopped_because) is not None:
                raise BuildFailed(f"The step was stopped because {limit}.")
    except sandbox.SandboxError as error:
        raise BuildFailed(f"The sandbox of this step could not be created: {error}") from error
    finally:
        os.close(read_fd)
    return CommandResult(code, list(tail))


def _read_output(
    context: BuildContext,
    process: sandbox.SandboxedProcess,
    fd: int,
    on_line: Callable[[str], None],
) -> None:
    """Read lines until the process has ended and its output is read."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    partial_line = b""
    ended_at: float | None = None
    while True:
        context.tick()
        if poll.poll(TICK_SECONDS * 1000):
            data = os.read(fd, 65_536)
            if not data:
                break
            *lines, partial_line = (
                (partial_line + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            )
            for line in lines:
                on_line(line.decode(errors="replace"))
            if len(partial_line) > _MAX_LINE_BYTES:
                on_line(partial_line.decode(errors="replace"))
                partial_line = b""
        elif process.poll() is not None:
            # Without namespaces, a surviving child may keep the pipe open.
            ended_at = ended_at or time.monotonic()
            if time.monotonic() - ended_at > _GRACE_SECONDS:
                break
    if partial_line:
        on_line(partial_line.decode(errors="replace"))


def _wait_for_exit(context: BuildContext, process: sandbox.SandboxedProcess) -> int:
    """Return the exit code. A command may close its output before it ends."""
    while True:
        try:
            return process.wait(TICK_SECONDS)
        except TimeoutError:
            context.tick()
