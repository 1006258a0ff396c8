"""What isolation this machine offers, found by trying it."""

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
    """The mode that sandboxes will use, and a sentence for the operator."""

    mode: Mode
    sentence: str
    binary: Binary | None = None

    @property
    def is_isolated(self) -> bool:
        return self.mode is not Mode.NONE


@functools.cache
def probe() -> Capability:
    """Try each means, best first, by running a program in it. Asked once per process."""
    who = (
        "a separate user for each organization"
        if os.geteuid() == 0
        else "the user who started the platform"
    )
    reasons = []
    for binary in bubblewrap.binaries():
        sentence = f"Agent code runs in namespaces of its own (bubblewrap), as {who}."
        candidate = Capability(Mode.BUBBLEWRAP, sentence, binary)
        if (reason := _try(candidate)) is None:
            return candidate
        reasons.append(reason)
    if not reasons:
        reasons.append("no bwrap program was found")

    if os.geteuid() == 0 and syscalls.landlock_version() and seccomp.program():
        sentence = (
            f"Agent code runs confined by Landlock, as {who}: it cannot reach others' files, but "
            "sees which processes exist and shares their network."
        )
        candidate = Capability(Mode.LANDLOCK, f"{sentence} Namespaces: {reasons[0]}")
        if (reason := _try(candidate)) is None:
            return candidate
        reasons.append(reason)

    sentence = "Agent code cannot be isolated on this machine: " + "; ".join(reasons)
    return Capability(Mode.NONE, sentence)


def _try(candidate: Capability) -> str | None:
    """None when a program runs in it, otherwise the reason in the words of who refused."""
    policy = Policy(cwd=Path("/"), uid=_TRIAL_UID)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output:
        try:
            process = launcher.start(
                policy, ["/bin/sh", "-c", ":"], means=candidate, stderr=writing
            )
            code = process.wait(10)
        except (SandboxError, TimeoutError, OSError, subprocess.SubprocessError) as error:
            code, fallback = 1, str(error)
        else:
            fallback = f"the trial ended with status {code}"
        finally:
            os.close(writing)
        if code == 0:
            return None
        said = output.read(4000).decode(errors="replace").strip().splitlines()
        return said[-1] if said else fallback
