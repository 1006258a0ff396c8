"""Which Python a revision gets: the platform's own when it fits, or another one of this machine."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import uv

_SECONDS = 20


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
    if found is None:
        raise NoInterpreter(
            f"This machine has no Python {version}; the platform itself runs {own}. Ask for {own}"
            f" in `python_version`, or have the operator install Python {version}."
        )
    # uv may name a shim; the interpreter knows better where it is.
    real = _ask([found, "-I", "-S", "-c", "import sys; print(sys.executable)"])
    return Path(real or found).resolve()


def _ask(argv: list[str]) -> str | None:
    env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd="/", env=env
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None
