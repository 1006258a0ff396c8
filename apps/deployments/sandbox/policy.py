"""The policy of a sandbox: visible files, environment, network and limits."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# The platform's source tree.
_PLATFORM = Path(__file__).resolve().parents[3]

MIB = 1024 * 1024
GIB = 1024 * MIB

# The private, writable, size-limited and temporary folder inside a sandbox.
TEMPORARY = Path("/tmp")  # noqa: S108 - a fresh tmpfs inside, never the host's folder


class Network(enum.Enum):
    """Network access of the sandbox."""

    SHARED = "shared"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of the host at another path inside."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of a sandbox's process tree."""

    memory_bytes: int = GIB
    """Private memory of the tree; also the maximum that each process can allocate."""
    processes: int = 256
    """Processes and threads together."""
    open_files: int = 1024
    """Per process."""
    file_bytes: int = 2 * GIB
    """Maximum size of a written file."""
    temporary_bytes: int = 256 * MIB
    """Size of the private `/tmp`, and again of `/dev/shm`; both live in memory."""
    disk_bytes: int | None = None
    """Total size of the files in the writable binds."""
    cpu_seconds: int | None = None
    """CPU time of each process."""
    nice: int = 5
    """Lower priority than the platform's own processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy of one sandbox. Anything not listed here is absent inside.

    Bind paths must not contain symbolic links: a link that a malicious earlier step left behind
    must not decide what a later step can access.
    """

    cwd: Path
    read_only: tuple[Path | Bind, ...] = ()
    writable: tuple[Path | Bind, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment. HOME, PATH, LANG and TMPDIR have defaults that it can override."""
    uid: int | None = None
    """The uid of the sandbox; required if the platform runs as root, otherwise ignored."""
    gid: int | None = None
    """Defaults to `uid`."""
    python: Path | None = Path(sys.executable)
    """A trusted interpreter whose installation is visible inside. Never a path that agent code
    could have written: its links are followed."""
    hidden: tuple[Path, ...] = (_PLATFORM,)
    """Folders hidden if they are inside a visible folder; `/usr/src` or a Python installation may
    contain the platform. Binds inside of them stay visible."""
    hostname: str = "agent"
    network: Network = Network.SHARED
    limits: Limits = Limits()


def format_size(size: int) -> str:
    """Return a size such as 512 MiB or 1.5 GiB."""
    unit, name = (GIB, "GiB") if size >= GIB else (MIB, "MiB")
    return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
