"""Running one command of a build in the sandbox, its output line by line in the log."""

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

from apps.deployments import sandbox
from apps.deployments.builds.build_context import TICK_SECONDS, Work
from apps.deployments.builds.errors import BuildFailed

_TAIL_LINES = 60
_LONGEST_LINE = 64 * 1024
_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended; `tail` holds the last lines that it said."""

    code: int
    tail: list[str]


def policy(
    work: Work,
    *,
    cwd: Path,
    env: Mapping[str, str],
    read_only: Sequence[Path | sandbox.Bind] = (),
    writable: Sequence[Path | sandbox.Bind] = (),
    python: Path | None = None,
    disk_mb: int | None = None,
) -> sandbox.Policy:
    """The policy of a build step: the network, the folders named here, and nothing else."""
    return sandbox.Policy(
        cwd=cwd,
        env=dict(env),
        read_only=tuple(read_only),
        writable=tuple(writable),
        uid=work.place.uid,
        python=python,
        hostname="build",
        network=sandbox.Network.SHARED,
        limits=sandbox.Limits(
            memory_bytes=settings.BUILD_MEMORY_MB * sandbox.MIB,
            processes=512,
            open_files=4096,
            temporary_bytes=512 * sandbox.MIB,
            disk_bytes=(disk_mb or settings.BUILD_DISK_MB) * sandbox.MIB,
        ),
    )


def run(
    work: Work,
    rules: sandbox.Policy,
    argv: Sequence[str],
    *,
    show: Callable[[str], bool] = lambda _: True,
) -> Outcome:
    """Run to the end and return how it went. Lines that `show` refuses stay out of the log.

    Raises `BuildFailed` when a limit ended it, and whatever `Work.tick` raises, after its end.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def take(line: str) -> None:
        tail.append(line)
        if show(line):
            work.log.write(line)

    reading, writing = os.pipe()
    try:
        try:
            process = sandbox.spawn(
                rules,
                argv,
                stdout=writing,
                stderr=subprocess.STDOUT,
                allow_unsandboxed=settings.ALLOW_UNSANDBOXED_AGENTS,
            )
        finally:
            os.close(writing)
        with process:
            _follow(work, process, reading, take)
            code = _ended(work, process)
            if (limit := process.stopped_because) is not None:
                raise BuildFailed(f"The step was stopped because {limit}.")
    except sandbox.SandboxError as error:
        raise BuildFailed(f"The sandbox for this step could not be made: {error}") from error
    finally:
        os.close(reading)
    return Outcome(code, list(tail))


def _follow(
    work: Work, process: sandbox.SandboxedProcess, fd: int, take: Callable[[str], None]
) -> None:
    """Read lines until the process has ended and all that it said is read."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    rest = b""
    ended_at: float | None = None
    while True:
        work.tick()
        if poll.poll(TICK_SECONDS * 1000):
            data = os.read(fd, 65_536)
            if not data:
                break
            *lines, rest = (rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                take(line.decode(errors="replace"))
            if len(rest) > _LONGEST_LINE:
                take(rest.decode(errors="replace"))
                rest = b""
        elif process.poll() is not None:
            # A child that outlived it may hold the pipe where there are no namespaces.
            ended_at = ended_at or time.monotonic()
            if time.monotonic() - ended_at > _GRACE_SECONDS:
                break
    if rest:
        take(rest.decode(errors="replace"))


def _ended(work: Work, process: sandbox.SandboxedProcess) -> int:
    """The exit status. A command may close its output and go on."""
    while True:
        try:
            return process.wait(TICK_SECONDS)
        except TimeoutError:
            work.tick()
