"""Where an instance keeps its things: everything follows from its data folder.

The supervisor makes these places and management commands find a running instance by them, so
the module needs nothing but the standard library.
"""

import hashlib
import os
import stat
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

# The kernel's `sun_path` holds 108 bytes with the closing zero.
MAX_SOCKET_PATH = 107
# PostgreSQL makes this file beside its socket; it is the longest name in the folder of sockets.
MAX_SOCKET_NAME = ".s.PGSQL.5432.lock"
# Embedded servers of an instance that root started run as this user: PostgreSQL refuses uid 0,
# and Redis does not need it. No distribution or systemd range hands this number out.
SERVICE_UID = 60999

DATABASE = "slipway"
# With this role installations of other regions write billing records, where those are kept.
BILLING_ROLE = "slipway_billing"


class UnsafeSocketFolder(Exception):
    """The folder for the sockets belongs to somebody else."""


class Instance:
    """One installation on this machine, named by its data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()

    @property
    def run_dir(self) -> Path:
        """Lock and control files of the supervisor; only its user may enter."""
        return self.data_dir / "run"

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "logs"

    @property
    def postgres_dir(self) -> Path:
        return self.data_dir / "postgres"

    @property
    def redis_dir(self) -> Path:
        return self.data_dir / "redis"

    @cached_property
    def socket_dir(self) -> Path:
        """The sockets of both servers; only the user they run as (and root) may enter.

        A data folder with a long path gets a folder under `/tmp` named by its hash, because a
        socket's path is short by law. A stranger could have made that one first, so its owner
        is checked: `UnsafePlace` is raised rather than trusting a stranger's server.
        """
        beside = self.data_dir / "sockets"
        if len(os.fsencode(beside / MAX_SOCKET_NAME)) <= MAX_SOCKET_PATH:
            return beside
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        short = Path("/tmp") / f"slipway-{digest}"  # noqa: S108 (owner and mode are checked)
        _require_private(short, self._owners())
        return short

    @property
    def postgres_socket_dir(self) -> Path:
        return self.socket_dir

    @property
    def redis_socket(self) -> Path:
        return self.socket_dir / "redis.sock"

    @property
    def database_url(self) -> str:
        return f"postgresql://{DATABASE}@/{DATABASE}?host={quote(str(self.socket_dir), safe='')}"

    @property
    def billing_url(self) -> str:
        """For other regions, when billing records are kept here."""
        folder = quote(str(self.socket_dir), safe="")
        return f"postgresql://{BILLING_ROLE}@/{DATABASE}?host={folder}"

    @property
    def redis_url(self) -> str:
        return f"unix://{quote(str(self.redis_socket))}?db=0"

    def _owners(self) -> set[int]:
        owners = {os.geteuid(), 0, SERVICE_UID}
        if self.data_dir.exists():
            owners.add(self.data_dir.stat().st_uid)
        return owners


def _require_private(folder: Path, owners: set[int]) -> None:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners or found.st_mode & 0o077:
        raise UnsafeSocketFolder(
            f"{folder} is not a private folder of this installation: remove it."
        )
