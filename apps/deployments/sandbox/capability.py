"""Detect the isolation that this machine supports, by trial."""

from __future__ import annotations

import enum
import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import bubblewrap, launcher, seccomp
from .bubblewrap import Binary
from .errors import SandboxError
from .policy import Policy
from .stub import syscalls

_TRIAL_UID = 65534


class Mode(enum.Enum):
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capability:
    """The isolation mode of sandboxes, with a description for the operator."""

    mode: Mode
    description: str
    binary: Binary | None = None

    @property
    def is_isolated(self) -> bool:
        return self.mode is not Mode.NONE


@functools.cache
def probe() -> Capability:
    """Try each isolation mode, best first, by running a program in it. Cached per process."""
    identity = (
        "a separate user for each organization"
        if os.geteuid() == 0
        else "the user who started the platform"
    )
    reasons = []
    for binary in bubblewrap.binaries():
        description = f"Agent code runs in its own namespaces (bubblewrap), as {identity}."
        candidate = Capability(Mode.BUBBLEWRAP, description, binary)
        if (reason := _try(candidate)) is None:
            return candidate
        reasons.append(reason)
    if not reasons:
        reasons.append("no bwrap program was found")

    if os.geteuid() == 0 and syscalls.landlock_version() and seccomp.program():
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
    policy = Policy(cwd=Path("/"), uid=_TRIAL_UID)
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd, "rb") as output:
        try:
            process = launcher.start(
                policy, ["/bin/sh", "-c", ":"], isolation=candidate, stderr=write_fd
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
