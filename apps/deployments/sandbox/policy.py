"""The policy of a sandbox: visible files, environment, network and limits; and its errors."""

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


class SandboxError(Exception):
    """Base of the errors raised before sandboxed code runs."""


class InvalidPolicy(SandboxError):
    """A policy would open the sandbox or cannot be applied."""


class SandboxUnavailable(SandboxError):
    """The machine has no isolation, and `allow_unsandboxed` is off."""


class SandboxSetupFailed(SandboxError):
    """The kernel or bubblewrap could not set up the sandbox."""


class Network(enum.Enum):
    """Network access of the sandbox."""

    SHARED = "shared"
    PROXIED = "proxied"
    """A network namespace of its own, out of which only the policy's `egress` leads."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A port of the sandbox's loopback address that leads to one address outside."""

    port: int
    host: str
    host_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalIndex:
    """A package index that the proxy serves at `url` and requests with the authorization.

    The authorization stays outside of the sandbox.
    """

    port: int
    """No port is open: requests to it go to the proxy, as all of a build do."""
    origin: str
    authorization: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """Addresses that a sandbox with `Network.PROXIED` reaches besides public ones.

    A name is resolved once, outside; all its addresses must be allowed.
    """

    networks: tuple[str, ...] = ()
    """Networks (`10.0.0.0/8`) that are allowed although they are private."""
    hosts: tuple[tuple[str, int], ...] = ()
    """Names with a port that are allowed at any address."""
    forwards: tuple[Forward, ...] = ()
    indexes: tuple[LocalIndex, ...] = ()
    """For sandboxes without servers of their own."""
    has_own_servers: bool = True
    """Whether requests to the loopback address stay inside instead of going to the proxy."""
    uses_operator_proxy: bool = False
    """Whether connections go through the proxy that the platform's own environment names."""


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
    is_background: bool = False
    """No user waits for its next second: it has a smaller share of a busy CPU than agents."""

    @property
    def nice(self) -> int:
        """A lower priority than the platform's own processes."""
        return 15 if self.is_background else 5


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
    owner: str = ""
    """A name for the organization: the sandboxes of one owner share the CPU time of one."""
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
    egress: Egress = Egress()
    """For `Network.PROXIED` only."""
    limits: Limits = Limits()


def format_size(size: int) -> str:
    """Return a size such as 512 MiB or 1.5 GiB."""
    unit, name = (GIB, "GiB") if size >= GIB else (MIB, "MiB")
    return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
