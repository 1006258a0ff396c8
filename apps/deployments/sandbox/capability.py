"""Start sandboxes with the best isolation that this machine supports, determined by trial."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import bubblewrap, launcher, seccomp
from .launcher import Capability, Mode, Stream
from .policy import Network, Policy, SandboxError, SandboxUnavailable
from .process import SandboxedProcess
from .stub import syscalls

_TRIAL_UID = 65534


def spawn(
    policy: Policy,
    argv: Sequence[str],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    pass_fds: Sequence[int] = (),
    allow_unsandboxed: bool = False,
) -> SandboxedProcess:
    """Run a command in a new sandbox; return once the sandbox is set up and the command starts.

    Callable from any thread. `stdin`, `stdout` and `stderr` are as for `subprocess.Popen`, and
    `pass_fds` keep their numbers inside. The process tree ends with the command, with `kill()`, or
    when this process dies.

    Raises `InvalidPolicy` for an unsafe policy, `SandboxUnavailable` if the machine has no
    isolation (unless `allow_unsandboxed`), `SandboxSetupFailed` if the kernel rejects the setup.
    """
    isolation = probe()
    if isolation.mode is Mode.NONE and not allow_unsandboxed:
        raise SandboxUnavailable(isolation.description)
    return launcher.start(
        policy,
        argv,
        isolation=isolation,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
    )


@functools.cache
def probe() -> Capability:
    """Try each isolation mode, best first, by running a program in it. Cached per process."""
    identity = (
        "a separate user for each organization"
        if os.geteuid() == 0
        else "the user who started the platform"
    )
    reasons = []
    for binary in bubblewrap.find_binaries():
        description = f"Agent code runs in its own namespaces (bubblewrap), as {identity}."
        candidate = Capability(Mode.BUBBLEWRAP, description, binary)
        if (reason := _try(candidate)) is None:
            return candidate
        reasons.append(reason)
    if not reasons:
        reasons.append("no bwrap program was found")

    if os.geteuid() == 0 and syscalls.get_landlock_version() and seccomp.program():
        description = (
            f"Agent code runs confined by Landlock, as {identity}: it cannot access others' files, "
            "but sees which processes exist and shares their network."
        )
        candidate = Capability(Mode.LANDLOCK, f"{description} Namespaces: {reasons[0]}")
        if (reason := _try(candidate)) is None:
            return candidate
        reasons.append(reason)

    description = "Agent code cannot be isolated on this machine: " + "; ".join(reasons)
    return Capability(Mode.NONE, description)


def _try(candidate: Capability) -> str | None:
    """Return None if a program runs in this mode, otherwise the error message."""
    # Namespaces without a network of their own would not isolate agents.
    network = Network.PROXIED if candidate.mode is Mode.BUBBLEWRAP else Network.SHARED
    policy = Policy(cwd=Path("/"), uid=_TRIAL_UID, network=network)
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as output:
        try:
            process = launcher.start(
                policy,
                ["/bin/sh", "-c", ":"],
                isolation=candidate,
                stderr=write_fd,
                is_trial=True,
            )
            code = process.wait(10)
        except (SandboxError, TimeoutError, OSError, subprocess.SubprocessError) as error:
            code, fallback = 1, str(error)
        else:
            fallback = f"the trial ended with status {code}"
        finally:
            os.close(write_fd)
        if code == 0:
            return None
        lines = output.read(4000).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else fallback
