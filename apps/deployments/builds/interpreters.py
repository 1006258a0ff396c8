"""Which Python a revision gets: the platform's own when it fits, or another one of this machine."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import uv

_SECONDS = 20

# Version managers put shims on the path, which answer only for the version chosen for a folder.
_MANAGERS = (
    ("PYENV_ROOT", ".pyenv", "versions"),
    ("ASDF_DATA_DIR", ".asdf", "installs/python"),
    ("MISE_DATA_DIR", ".local/share/mise", "installs/python"),
)
_PATCH = re.compile(r"\d+\.\d+\.(\d+)")


class NoInterpreter(Exception):
    """The machine has no Python of that version."""


def uv_program() -> Path:
    """The uv that came with the platform."""
    return Path(uv.find_uv_bin()).resolve()


@functools.cache
def find(version: str | None) -> Path:
    """An interpreter of `major.minor`, never one that agent code could have written."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version in (None, own):
        return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    question = [str(uv_program()), "python", "find", "--system", "--no-project"]
    found = _ask([*question, "--no-python-downloads", "--no-config", str(version)])
    if found is None and (managed := _managed(str(version))):
        found = str(managed[0])
    if found is None:
        raise NoInterpreter(
            f"This machine has no Python {version}; the platform itself runs {own}. Ask for {own}"
            f" in `python_version`, or have the operator install Python {version}."
        )
    # uv may name a shim; the interpreter knows better where it is.
    real = _ask([found, "-I", "-S", "-c", "import sys; print(sys.executable)"])
    return Path(real or found).resolve()


def of(environment: Path, version: str | None) -> Path:
    """The interpreter behind an environment's own: a newer patch may have come since it was made.

    What the environment says is believed only when it names one that `find` might have found.
    """
    try:
        behind = environment.resolve()
    except (OSError, RuntimeError):
        return find(version)
    return behind if version and behind in _managed(version) else find(version)


def _managed(version: str) -> list[Path]:
    """What version managers of this user have installed of `version`, the newest patch first."""
    programs = (
        program
        for variable, folder, below in _MANAGERS
        for program in Path(os.environ.get(variable) or Path(os.environ.get("HOME", "/"), folder))
        .joinpath(below)
        .glob(f"{version}.*/bin/python{version}")
    )
    # Other builds of a version, such as 3.13.0t, are asked for by nobody.
    patches = [
        (int(patch[1]), program.resolve())
        for program in programs
        if (patch := _PATCH.fullmatch(program.parent.parent.name))
    ]
    return [program for _, program in sorted(patches, reverse=True)]


def _ask(argv: list[str]) -> str | None:
    env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd="/", env=env
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None
