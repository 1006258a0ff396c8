"""What sandboxed code may see, use and reach, as plain data."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# The platform's own code and whatever its operator keeps beside it.
_PLATFORM = Path(__file__).resolve().parents[3]

MIB = 1024 * 1024
GIB = 1024 * MIB

# Where sandboxed code finds its private, writable, bounded and forgotten folder.
TEMPORARY = Path("/tmp")  # noqa: S108 - a fresh tmpfs inside, never the host's folder


class Network(enum.Enum):
    """What the sandbox reaches. A policy of the deployment will choose among more of these."""

    SHARED = "shared"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of the host at another place inside."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one sandbox, as a whole tree of processes, may use."""

    memory_bytes: int = GIB
    """Private memory of the tree; also the most that any one of its processes can ask for."""
    processes: int = 256
    """Processes and threads together."""
    open_files: int = 1024
    """Per process."""
    file_bytes: int = 2 * GIB
    """The largest file it may write."""
    temporary_bytes: int = 256 * MIB
    """Size of the private `/tmp`, and again of `/dev/shm`; both live in memory."""
    disk_bytes: int | None = None
    """All files in the writable binds together."""
    cpu_seconds: int | None = None
    """CPU time of each process."""
    nice: int = 5
    """Below the platform's own processes, so that these answer first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One sandbox. Everything that is not named here is absent inside.

    Paths of binds are real paths without symbolic links: a link that an earlier, hostile step
    left behind must not decide what the next one sees.
    """

    cwd: Path
    read_only: tuple[Path | Bind, ...] = ()
    writable: tuple[Path | Bind, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment, besides HOME, PATH, LANG and TMPDIR, which it may replace."""
    uid: int | None = None
    """Changed to when started as root, where it is required; ignored for an ordinary user."""
    gid: int | None = None
    """As `uid`, which it defaults to."""
    python: Path | None = Path(sys.executable)
    """A trusted interpreter whose installation is visible inside. Never a path that agent code
    could have written: its links are followed."""
    hidden: tuple[Path, ...] = (_PLATFORM,)
    """Covered where they lie in a folder that is shown, as `/usr/src` or a Python installation
    may hold the platform. Binds inside of them stay visible."""
    hostname: str = "agent"
    network: Network = Network.SHARED
    limits: Limits = Limits()


def in_words(size: int) -> str:
    """A size as people write it: 512 MiB, 1.5 GiB."""
    unit, name = (GIB, "GiB") if size >= GIB else (MIB, "MiB")
    return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
