"""A backup is one tar file: manifest, database dump, objects.

The manifest has the row count and checksum of each table, so that a restore can verify itself. The
dump is one consistent snapshot. Objects are copied after it: an object that was deleted meanwhile
is missing.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.files.storage import Storage, default_storage
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.core.json import dumps, loads
from apps.operators.backup import contents, programs

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


def write(
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
                open(draft, "wb", opener=_private) as raw,
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


def read(file: Path, *, using: str = "default", storage: Storage | None = None) -> Report:
    """Replace the database and the objects by those of the backup.

    Drops everything that the platform's role owns in the database. Safe to repeat.
    """
    wrapper = connections[using]
    storage = storage or default_storage
    objects = 0
    with tarfile.open(file) as tar, tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        manifest = _read_manifest(tar)
        dump = Path(scratch, DATABASE)
        with dump.open("wb") as into:
            _copy(tar, DATABASE, into)
        measures = _restore(wrapper, dump, quick=manifest["quick"])
        for member in tar:
            if member.isfile() and member.name.startswith(OBJECTS):
                content = tar.extractfile(member)
                assert content is not None  # noqa: S101
                _put(storage, member.name.removeprefix(OBJECTS), content.read())
                objects += 1
    return Report(
        len(measures),
        sum(int(measure[0]) for measure in measures.values()),
        objects,
        file.stat().st_size,
        tuple(contents.differences(manifest["tables"], measures)),
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
        programs.run("pg_dump", arguments, wrapper.settings_dict)
        return contents.measure(session, quick=quick)


def _restore(wrapper: BaseDatabaseWrapper, dump: Path, *, quick: bool) -> dict[str, list[Any]]:
    wrapper.close()
    with _session(wrapper) as session:
        session.execute("DROP OWNED BY CURRENT_USER CASCADE")
        # Dropped above if this role owns it; the embedded server's belongs to a superuser.
        session.execute("CREATE EXTENSION IF NOT EXISTS vector")
    arguments = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    database = f"--dbname={wrapper.settings_dict['NAME']}"
    programs.run("pg_restore", [*arguments, database, str(dump)], wrapper.settings_dict)
    with _session(wrapper) as session:
        session.execute("ANALYZE")
        with session.transaction():
            return contents.measure(session, quick=quick)


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


def _copy(tar: tarfile.TarFile, name: str, into: Any) -> None:
    content = tar.extractfile(name)
    assert content is not None  # noqa: S101
    while chunk := content.read(1_048_576):
        into.write(chunk)


def _put(storage: Any, name: str, content: bytes) -> None:
    """Store an object; the storage refuses paths outside of it."""
    storage.remove([name])
    storage.put(name, content)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
