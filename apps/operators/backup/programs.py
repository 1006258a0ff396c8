"""Runs `pg_dump` and `pg_restore` of the embedded PostgreSQL, or the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from apps.core.instance import find_postgres_program

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


def run(name: str, arguments: Sequence[str], database: Mapping[str, Any]) -> None:
    """Run the program against the database, without its password on the command line."""
    process = subprocess.run(
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
