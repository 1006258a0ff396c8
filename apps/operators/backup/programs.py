"""`pg_dump` and `pg_restore`: those of the embedded PostgreSQL's wheel, else the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from config.embedded.postgres import program

# What Django's settings of a database say, in libpq's words.
_PLACES = {
    "HOST": "PGHOST",
    "PORT": "PGPORT",
    "USER": "PGUSER",
    "PASSWORD": "PGPASSWORD",
    "NAME": "PGDATABASE",
}
_OPTIONS = {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "options": "PGOPTIONS"}


class ProgramFailed(Exception):
    """What the program said last."""


def run(name: str, arguments: Sequence[str], database: Mapping[str, Any]) -> None:
    """Run the program against the database; its password is in no command line."""
    done = subprocess.run(
        [_found(name), *arguments], env=_environment(database), capture_output=True, check=False
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise ProgramFailed(f"{name} failed: {said[-2000:]}")


def _found(name: str) -> str:
    bundled = program(name)
    if bundled is not None:
        return str(bundled)
    own = shutil.which(name)
    if own is None:
        raise ProgramFailed(f"There is no {name} here: install PostgreSQL's client programs.")
    return own


def _environment(database: Mapping[str, Any]) -> dict[str, str]:
    places = {theirs: str(database[ours]) for ours, theirs in _PLACES.items() if database.get(ours)}
    options = database.get("OPTIONS") or {}
    said = {theirs: str(options[ours]) for ours, theirs in _OPTIONS.items() if options.get(ours)}
    return {**os.environ, **said, **places}
