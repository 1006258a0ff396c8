"""A backup is one tar file: manifest, database dump, objects.

The manifest has the row count and checksum of each table, so that a restore can verify itself. The
dump is one consistent snapshot. Objects are copied after it: an object that was deleted meanwhile
is missing.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.files.storage import Storage, default_storage
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from apps.core.instance import find_postgres_program
from apps.core.json import dumps, loads

# Django's database settings as environment variables of libpq.
_CONNECTION_VARIABLES = {
    "HOST": "PGHOST",
    "PORT": "PGPORT",
    "USER": "PGUSER",
    "PASSWORD": "PGPASSWORD",
    "NAME": "PGDATABASE",
}
_OPTION_VARIABLES = {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "options": "PGOPTIONS"}


class ProgramFailed(Exception):
    """The program failed; the message ends with its output."""


def run_program(name: str, arguments: Sequence[str], database: Mapping[str, Any]) -> None:
    """Run the program against the database, without its password on the command line."""
    process = subprocess.run(  # noqa: S603 -- a program of PostgreSQL, for an operator
        [_find_program(name), *arguments],
        env=_environment(database),
        capture_output=True,
        check=False,
    )
    if process.returncode:
        output = process.stderr.decode(errors="replace").strip()
        raise ProgramFailed(f"{name} failed: {output[-2000:]}")


def _find_program(name: str) -> str:
    path = find_postgres_program(name) or shutil.which(name)
    if path is None:
        raise ProgramFailed(f"{name} is not installed: install PostgreSQL's client programs.")
    return str(path)


def _environment(database: Mapping[str, Any]) -> dict[str, str]:
    options = database.get("OPTIONS") or {}
    return {
        **os.environ,
        **_translate(options, _OPTION_VARIABLES),
        **_translate(database, _CONNECTION_VARIABLES),
    }


def _translate(values: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    return {variables[name]: str(values[name]) for name in variables if values.get(name)}


# Tables and single partitions, without tables of extensions.
_TABLES = """
SELECT c.oid::regclass::text FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r'
  AND NOT EXISTS (
      SELECT FROM pg_depend d
      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
  )
ORDER BY 1
"""
_SUM = """
SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM ONLY {} t
"""
_COUNT = "SELECT count(*), '' FROM ONLY {} t"


def measure_tables(
    connection: psycopg.Connection[Any], *, quick: bool = False
) -> dict[str, list[Any]]:
    """Return row count and checksum of each table; `quick` omits the checksums.

    The checksum is a sum of row hashes, so it is independent of their order.
    """
    statement = _COUNT if quick else _SUM
    measures: dict[str, list[Any]] = {}
    # The text form of values, and so the hash, depends on these settings.
    connection.execute("SET LOCAL search_path = public, pg_catalog")
    connection.execute("SET LOCAL extra_float_digits = 1")
    connection.execute("SET LOCAL bytea_output = 'hex'")
    connection.execute("SET LOCAL timezone = 'UTC'")
    for (table,) in connection.execute(_TABLES).fetchall():
        row = connection.execute(sql.SQL(statement).format(_table_sql(table))).fetchone()
        measures[table] = list(row or ())
    return measures


def find_table_differences(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> list[str]:
    """Return the tables that differ, with both measures."""
    return [
        f"{table}: {first.get(table, 'missing')} and {second.get(table, 'missing')}"
        for table in sorted({*first, *second})
        if first.get(table) != second.get(table)
    ]


def _table_sql(table: str) -> sql.Composable:
    """Return the table name as SQL; `regclass` output is already quoted."""
    return sql.SQL(table)


FORMAT = 1
MANIFEST, DATABASE, OBJECTS = "manifest.json", "database.dump", "objects/"


class NotABackup(Exception):
    """The file is not a backup, or of an unsupported format version."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a backup or restore."""

    tables: int
    rows: int
    objects: int
    size: int
    differences: tuple[str, ...] = ()
    """Tables that differ from the manifest; empty after a correct restore."""
    same_keys: bool = True
    """Whether this installation's encryption keys are those of the backup."""


def write_backup(
    file: Path,
    *,
    using: str = "default",
    storage: Storage | None = None,
    quick: bool = False,
) -> Report:
    """Write the backup atomically, readable by its owner only."""
    wrapper = connections[using]
    storage = storage or default_storage
    draft = file.with_name(f".{file.name}.part")
    try:
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            dump = Path(scratch, DATABASE)
            measures = _dump(wrapper, dump, quick=quick)
            with (
                open(draft, "wb", opener=_open_private) as raw,
                tarfile.open(fileobj=raw, mode="w") as tar,
            ):
                _add_bytes(tar, MANIFEST, dumps(_build_manifest(measures)))
                tar.add(dump, DATABASE)
                objects = 0
                for name in list_objects(storage):
                    objects += _add_object(tar, storage, name)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    rows = sum(int(measure[0]) for measure in measures.values())
    return Report(len(measures), rows, objects, file.stat().st_size)


def restore_backup(file: Path, *, using: str = "default", storage: Storage | None = None) -> Report:
    """Replace the database and the objects by those of the backup.

    Drops everything that the platform's role owns in the database. Safe to repeat.
    """
    wrapper = connections[using]
    storage = storage or default_storage
    objects = 0
    with tarfile.open(file) as tar, tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        manifest = _read_manifest(tar)
        dump = Path(scratch, DATABASE)
        with dump.open("wb") as target:
            _copy_member(tar, DATABASE, target)
        measures = _restore(wrapper, dump, quick=manifest["quick"])
        for member in tar:
            if member.isfile() and member.name.startswith(OBJECTS):
                content = tar.extractfile(member)
                assert content is not None  # noqa: S101
                _replace_object(storage, member.name.removeprefix(OBJECTS), content.read())
                objects += 1
    return Report(
        len(measures),
        sum(int(measure[0]) for measure in measures.values()),
        objects,
        file.stat().st_size,
        tuple(find_table_differences(manifest["tables"], measures)),
        manifest["keys"] == _fingerprint(),
    )


def _dump(wrapper: BaseDatabaseWrapper, dump: Path, *, quick: bool) -> dict[str, list[Any]]:
    """Dump and measure the same snapshot."""
    with _session(wrapper) as session, session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        (snapshot,) = session.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        # The embedded pg_dump has no compression, and large columns are compressed already.
        # Extensions must be installed on the target server.
        arguments = ["--format=custom", "--compress=none", "--no-owner", "--no-privileges"]
        arguments += ["--exclude-extension=*", f"--snapshot={snapshot}", f"--file={dump}"]
        run_program("pg_dump", arguments, wrapper.settings_dict)
        return measure_tables(session, quick=quick)


def _restore(wrapper: BaseDatabaseWrapper, dump: Path, *, quick: bool) -> dict[str, list[Any]]:
    wrapper.close()
    with _session(wrapper) as session:
        session.execute("DROP OWNED BY CURRENT_USER CASCADE")
        # Dropped above if this role owns it; the embedded server's belongs to a superuser.
        session.execute("CREATE EXTENSION IF NOT EXISTS vector")
    arguments = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    database = f"--dbname={wrapper.settings_dict['NAME']}"
    run_program("pg_restore", [*arguments, database, str(dump)], wrapper.settings_dict)
    with _session(wrapper) as session:
        session.execute("ANALYZE")
        with session.transaction():
            return measure_tables(session, quick=quick)


def _session(wrapper: BaseDatabaseWrapper) -> psycopg.Connection[Any]:
    parameters = wrapper.get_connection_params()
    return psycopg.connect(
        **{
            name: parameters[name]
            for name in ("dbname", "user", "password", "host", "port", "sslmode", "options")
            if parameters.get(name)
        },
        autocommit=True,
    )


def _build_manifest(measures: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "made_at": datetime.now(UTC).isoformat(),
        "region": settings.REGION,
        "keys": _fingerprint(),
        "quick": all(not measure[1] for measure in measures.values()),
        "tables": measures,
    }


def _read_manifest(tar: tarfile.TarFile) -> dict[str, Any]:
    member = tar.next()
    if member is None or member.name != MANIFEST:
        raise NotABackup("The file is not a Slipway backup.")
    content = tar.extractfile(member)
    assert content is not None  # noqa: S101
    manifest: dict[str, Any] = loads(content.read())
    if manifest.get("format") != FORMAT:
        raise NotABackup(
            f"The backup has format {manifest.get('format')}; this version reads {FORMAT}."
        )
    return manifest


def _fingerprint() -> list[str]:
    """Return hashes of the encryption keys, to compare them; backups contain no keys."""
    salt = b"slipway backup "
    return [
        hashlib.sha256(salt + key.encode()).hexdigest()[:12] for key in settings.ENCRYPTION_KEYS
    ]


def list_objects(storage: Storage, folder: str = "") -> Iterator[str]:
    """Yield the path of every object."""
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return
    for name in sorted(files):
        if not name.startswith("."):  # an unfinished write
            yield f"{folder}/{name}" if folder else name
    for name in sorted(folders):
        yield from list_objects(storage, f"{folder}/{name}" if folder else name)


def _add_object(tar: tarfile.TarFile, storage: Storage, name: str) -> bool:
    try:
        with storage.open(name, "rb") as content:
            _add_bytes(tar, OBJECTS + name, content.read())
    except FileNotFoundError:
        return False
    return True


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    member.mtime = int(datetime.now(UTC).timestamp())
    tar.addfile(member, io.BytesIO(content))


def _copy_member(tar: tarfile.TarFile, name: str, target: Any) -> None:
    content = tar.extractfile(name)
    assert content is not None  # noqa: S101
    while chunk := content.read(1_048_576):
        target.write(chunk)


def _replace_object(storage: Any, name: str, content: bytes) -> None:
    """Store an object; the storage refuses paths outside of it."""
    storage.remove([name])
    storage.put(name, content)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
