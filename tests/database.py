"""The databases of the tests: one migrated template, which each worker of pytest-xdist copies.

Migrating costs 12 s of CPU. A dump of the result is kept for as long as the migrations, the
packages and the day are the same (migrations create the partitions of the day): in TEST_CACHE_DIR,
which `.ci/run` gives all checkouts of a machine, or in pytest's cache.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.backends.postgresql.creation import DatabaseCreation

from apps.core.instance import BASE_DIR, find_postgres_program
from apps.trace_store.postgres import partitions
from tests.file_lock import hold_lock
from tests.gate.phases import NAME as PHASE

NAME = "test_slipway_template"
CREATION_SECONDS = 150
# PostgreSQL plans a query of runs for each of their partitions: 35 as in a new installation take
# most of the time of such a query. Earlier runs are in the partition of the past.
CREATE_BEHIND = timedelta(days=2)
# Code that migrations call.
CALLED = (
    *("apps/trace_store/postgres/partitions.py", "apps/core/ids.py"),
    *("apps/core/vectors.py", "apps/core/verbatim_json.py", "tests/database.py"),
)


def copy_on_setup(folder: Path, config: pytest.Config) -> None:
    """Create the template unless another worker has, and let Django's set-up copy it.

    `folder` belongs to the whole test run.
    """
    with hold_lock(folder / "database.lock", CREATION_SECONDS) as lock:
        if os.fstat(lock).st_size == 0:
            _create(Dump.find("template", config))
            os.write(lock, b"created")
    test_settings = connection.settings_dict["TEST"]
    test_settings["TEMPLATE"] = NAME
    # The same names of workers exist in each phase, and phases run side by side.
    if test_settings["NAME"] is not None and PHASE in os.environ:
        test_settings["NAME"] += f"_{os.environ[PHASE]}"
    # The copy is complete: the command `migrate` would only compare all models with it.
    connection.creation.create_test_db = _copy  # type: ignore[method-assign]


def _copy(**_options: object) -> str:
    return _create_empty(connection.settings_dict["TEST"]["NAME"])


def _create_empty(test_name: str | None) -> str:
    """Create a database without migrating it (a copy, where TEST names a template)."""
    test_settings = connection.settings_dict["TEST"]
    original_name, test_settings["NAME"] = test_settings["NAME"], test_name
    try:
        name: str = connection.creation._get_test_db_name()  # type: ignore[attr-defined]
        connection.creation._create_test_db(verbosity=0, autoclobber=True)  # type: ignore[attr-defined]
    finally:
        test_settings["NAME"] = original_name
    connection.close()
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name
    return name


def _create(dump: Dump) -> None:
    original_name = connection.settings_dict["NAME"]
    try:
        if dump.path.exists():
            _create_empty(NAME)
        if not dump.restore(NAME):
            _migrate()
            dump.save(NAME)
    finally:
        # A template can only be copied while no process is connected to it.
        connection.close()
        settings.DATABASES["default"]["NAME"] = original_name
        connection.settings_dict["NAME"] = original_name


def _migrate() -> None:
    test_settings = connection.settings_dict["TEST"]
    test_name, test_settings["NAME"] = test_settings["NAME"], NAME
    try:
        with mock.patch.object(partitions, "CREATE_BEHIND", CREATE_BEHIND):
            connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    finally:
        test_settings["NAME"] = test_name


def _fingerprint(sources: Iterable[str]) -> str:
    digest = sha256(datetime.now(UTC).date().isoformat().encode())
    migrations = sorted(BASE_DIR.glob("apps/*/migrations/*.py"))
    called = (BASE_DIR / path for path in ("requirements.lock", *CALLED, *sources))
    for path in (*called, *migrations):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


@dataclass(frozen=True)
class Dump:
    """A migrated database as a file, which outlives the test run."""

    path: Path

    @classmethod
    def find(cls, kind: str, config: pytest.Config, sources: Iterable[str] = ()) -> Dump:
        """Return the dump for today's migrations, which may not exist yet.

        `sources` are files, besides the migrations, that decide what they do in this kind.
        """
        assert config.cache is not None
        folder = Path(os.environ.get("TEST_CACHE_DIR") or config.cache.mkdir("migrated_database"))
        return cls(folder / f"{kind}-{_fingerprint(sources)}.sql")

    def restore(self, name: str) -> bool:
        """Fill the empty database of that name; False without a usable dump."""
        psql = ["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={self.path}"]
        return self.path.exists() and _run(*psql, name=name, stdout=subprocess.DEVNULL)

    def save(self, name: str) -> None:
        draft = self.path.with_suffix(f".{os.getpid()}")
        # Only the owner of an extension, who is another role, may set its comment.
        if _run("pg_dump", "--no-comments", "--no-owner", f"--file={draft}", name=name):
            kind = self.path.name.partition("-")[0]
            for old in self.path.parent.glob(f"{kind}-*.sql"):
                old.unlink(missing_ok=True)
            draft.rename(self.path)


def _run(program: str, *arguments: str, name: str, **options: Any) -> bool:
    """Run a PostgreSQL program on a database; whether it is there and succeeded."""
    path = find_postgres_program(program)
    if path is None:
        return False
    parameters = connection.get_connection_params()
    address = {
        f"PG{key.upper()}": str(parameters[key])
        for key in ("host", "port", "user", "password")
        if parameters.get(key)
    }
    process = subprocess.run(
        [path, *arguments, f"--dbname={name}"],
        env={**os.environ, **address},
        check=False,
        **options,
    )
    return process.returncode == 0


def drop_with_sessions(creation: DatabaseCreation, name: str, _verbosity: int) -> None:
    """Drop a test database; threads of the product that still run may have sessions in it."""
    with creation._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE {connection.ops.quote_name(name)} WITH (FORCE)")


def empty_tables(_case: object = None) -> None:
    """Delete what a test has committed; replaces Django's flush of a TransactionTestCase.

    Flush truncates each of the models' tables, which costs 0.5 s however little is in them, and
    it leaves tables without a model (those of runs).
    """
    for attempt in range(3):
        try:
            with transaction.atomic():
                _delete_rows()
        except Exception as error:
            _deletion.session = 0  # the function was rolled back as well
            # A thread of the test wrote meanwhile.
            is_concurrent = isinstance(error, IntegrityError | OperationalError)
            if attempt == 2 or not is_concurrent:
                raise
        else:
            return


@dataclass
class _Deletion:
    """The function that deletes all rows: its session, whose plans it keeps, and its tables."""

    session: int = 0
    tables: tuple[str, ...] = ()


_deletion = _Deletion()


def _delete_rows() -> None:
    with connection.cursor() as cursor:
        # The audit log is append-only for everyone else. Foreign keys are checked at the commit.
        cursor.execute("SET LOCAL slipway.audit = 'retention'")
        cursor.execute(
            "SELECT pg_backend_pid(), array_agg(oid::regclass::text ORDER BY oid) FROM pg_class"
            " WHERE relkind IN ('r', 'p')"
            " AND NOT relispartition AND relnamespace = 'public'::regnamespace"
            " AND relname NOT IN ('django_migrations', 'django_content_type')"
        )
        session, tables = cursor.fetchone()
        wanted = _Deletion(session, tuple(tables))
        if wanted != _deletion:
            statements = (
                f"IF EXISTS (SELECT FROM {table}) THEN DELETE FROM {table}; END IF;"
                for table in tables
            )
            cursor.execute(
                "CREATE OR REPLACE FUNCTION pg_temp.empty_tables() RETURNS void LANGUAGE plpgsql"
                f" AS $$ BEGIN {' '.join(statements)} END $$"
            )
            _deletion.session, _deletion.tables = wanted.session, wanted.tables
        cursor.execute("SELECT pg_temp.empty_tables()")
