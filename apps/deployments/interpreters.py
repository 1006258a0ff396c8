"""Select the Python interpreter of a revision: the platform's own or another installed one."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import uv

_TIMEOUT_SECONDS = 20

# Shims of version managers on PATH only run the version selected for a folder.
_VERSION_MANAGERS = (
    ("PYENV_ROOT", ".pyenv", "versions"),
    ("ASDF_DATA_DIR", ".asdf", "installs/python"),
    ("MISE_DATA_DIR", ".local/share/mise", "installs/python"),
)
_PATCH = re.compile(r"\d+\.\d+\.(\d+)")


class InterpreterNotFound(Exception):
    """The machine has no Python of the requested version."""


def uv_path() -> Path:
    """Return the path of the platform's uv."""
    return Path(uv.find_uv_bin()).resolve()


@functools.cache
def find_interpreter(version: str | None) -> Path:
    """Return an interpreter of `major.minor`, never one that agent code could have written."""
    own_version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version in (None, own_version):
        return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    command = [str(uv_path()), "python", "find", "--system", "--no-project"]
    result = _run_and_read([*command, "--no-python-downloads", "--no-config", str(version)])
    if result is None and (managed := _managed_interpreters(str(version))):
        result = str(managed[0])
    if result is None:
        raise InterpreterNotFound(
            f"This machine has no Python {version}; the platform itself runs {own_version}. Set"
            f" `python_version` to {own_version}, or have the operator install Python {version}."
        )
    # uv may return a shim; the interpreter reports its real path.
    real = _run_and_read([result, "-I", "-S", "-c", "import sys; print(sys.executable)"])
    return Path(real or result).resolve()


def select_interpreter(environment: Path, version: str | None) -> Path:
    """Return the interpreter that a virtual environment was created with.

    A newer patch version may be installed since. Agent code can write the environment's link, so
    the link counts only if `find_interpreter` could have returned its target.
    """
    try:
        target = environment.resolve()
    except (OSError, RuntimeError):
        return find_interpreter(version)
    return (
        target
        if version and target in _managed_interpreters(version)
        else find_interpreter(version)
    )


def _managed_interpreters(version: str) -> list[Path]:
    """Return the interpreters of `version` in version managers, newest patch first."""
    programs = (
        program
        for variable, folder, below in _VERSION_MANAGERS
        for program in Path(os.environ.get(variable) or Path(os.environ.get("HOME", "/"), folder))
        .joinpath(below)
        .glob(f"{version}.*/bin/python{version}")
    )
    # Skip variant builds such as 3.13.0t.
    patches = [
        (int(patch[1]), program.resolve())
        for program in programs
        if (patch := _PATCH.fullmatch(program.parent.parent.name))
    ]
    return [program for _, program in sorted(patches, reverse=True)]


def _run_and_read(argv: list[str]) -> str | None:
    env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    try:
        process = subprocess.run(  # noqa: S603 -- programs of folders that the operator names
            argv,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            cwd="/",
            env=env,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    output = process.stdout.strip()
    return output if process.returncode == 0 and output else None
