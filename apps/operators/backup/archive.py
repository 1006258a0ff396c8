"""A backup is one tar file: what it is, the database, the objects.

The manifest comes first and says how many rows each table has and their checksums, so that a
restore can tell whether everything came back. All of the database is of one moment. Objects are
copied after it: one that was deleted meanwhile is missing, and its run says so.
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
    """The file is none of ours, or of a later version."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was written or read."""

    tables: int
    rows: int
    objects: int
    size: int
    differences: tuple[str, ...] = ()
    """Of what came back from what went in; nothing may be here."""
    same_keys: bool = True
    """Whether secrets in the database can be read with this installation's encryption keys."""


def write(
    file: Path,
    *,
    using: str = "default",
    storage: Storage | None = None,
    quick: bool = False,
) -> Report:
    """Write the backup; the file is there, whole, when this returns, readable by its owner only."""
    wrapper = connections[using]
    storage = storage or default_storage
    draft = file.with_name(f".{file.name}.part")
    try:
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            dump = Path(scratch, DATABASE)
            measured = _dump(wrapper, dump, quick=quick)
            with (
                open(draft, "wb", opener=_private) as raw,
                tarfile.open(fileobj=raw, mode="w") as tar,
            ):
                _add_bytes(tar, MANIFEST, dumps(_manifest(measured)))
                tar.add(dump, DATABASE)
                objects = 0
                for name in names_of(storage):
                    objects += _add_object(tar, storage, name)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    rows = sum(int(counted[0]) for counted in measured.values())
    return Report(len(measured), rows, objects, file.stat().st_size)


def read(file: Path, *, using: str = "default", storage: Storage | None = None) -> Report:
    """Put the backup in the place of what is there: the database first, then the objects.

    Everything that the platform's role owns in the database goes. Safe to repeat.
    """
    wrapper = connections[using]
    storage = storage or default_storage
    objects = 0
    with tarfile.open(file) as tar, tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        manifest = _manifest_of(tar)
        dump = Path(scratch, DATABASE)
        with dump.open("wb") as into:
            _copy(tar, DATABASE, into)
        measured = _restore(wrapper, dump, quick=manifest["quick"])
        for member in tar:
            if member.isfile() and member.name.startswith(OBJECTS):
                content = tar.extractfile(member)
                assert content is not None  # noqa: S101
                _put(storage, member.name.removeprefix(OBJECTS), content.read())
                objects += 1
    return Report(
        len(measured),
        sum(int(counted[0]) for counted in measured.values()),
        objects,
        file.stat().st_size,
        tuple(contents.differences(manifest["tables"], measured)),
        manifest["keys"] == _fingerprint(),
    )


def _dump(wrapper: BaseDatabaseWrapper, dump: Path, *, quick: bool) -> dict[str, list[Any]]:
    """Dump and measure one and the same moment."""
    with _session(wrapper) as session, session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        (snapshot,) = session.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        # The wheel's pg_dump packs nothing, and the large columns are packed already.
        # What an extension brings, an operator has installed on the server it goes to.
        arguments = ["--format=custom", "--compress=none", "--no-owner", "--no-privileges"]
        arguments += ["--exclude-extension=*", f"--snapshot={snapshot}", f"--file={dump}"]
        programs.run("pg_dump", arguments, wrapper.settings_dict)
        return contents.measure(session, quick=quick)


def _restore(wrapper: BaseDatabaseWrapper, dump: Path, *, quick: bool) -> dict[str, list[Any]]:
    wrapper.close()
    with _session(wrapper) as session:
        session.execute("DROP OWNED BY CURRENT_USER CASCADE")
        # It goes with the rest where this role has made it; the embedded one's is a superuser's.
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


def _manifest(measured: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "made_at": datetime.now(UTC).isoformat(),
        "region": settings.REGION,
        "keys": _fingerprint(),
        "quick": all(not counted[1] for counted in measured.values()),
        "tables": measured,
    }


def _manifest_of(tar: tarfile.TarFile) -> dict[str, Any]:
    first = tar.next()
    if first is None or first.name != MANIFEST:
        raise NotABackup("This is not a backup of Slipway.")
    content = tar.extractfile(first)
    assert content is not None  # noqa: S101
    manifest: dict[str, Any] = loads(content.read())
    if manifest.get("format") != FORMAT:
        raise NotABackup(f"This backup has the format {manifest.get('format')}, not {FORMAT}.")
    return manifest


def _fingerprint() -> list[str]:
    """Of the encryption keys, which are in no backup: enough to tell whether they are the same."""
    salt = b"slipway backup "
    return [
        hashlib.sha256(salt + key.encode()).hexdigest()[:12] for key in settings.ENCRYPTION_KEYS
    ]


def names_of(storage: Storage, folder: str = "") -> Iterator[str]:
    """Every object, by its path; `[]` where there is no folder yet."""
    try:
        folders, files = storage.listdir(folder)
    except FileNotFoundError:
        return
    for name in sorted(files):
        if not name.startswith("."):  # a draft, whose writer is at work or dead
            yield f"{folder}/{name}" if folder else name
    for name in sorted(folders):
        yield from names_of(storage, f"{folder}/{name}" if folder else name)


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
    """The storage itself refuses a path that leaves it."""
    storage.remove([name])
    storage.put(name, content)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
