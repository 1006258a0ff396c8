"""Compile the modules of a build, or copy them from a cache. Runs in the sandbox.

    python compile_program.py CACHE FOLDER...

The agent's Python runs it, without the platform's code. A cached module is found by the content of
its source, so revisions with the same packages compile them once. Hosts mount the folders
read-only: what is compiled is valid whatever the times of its files are. A module that cannot be
compiled is left out, as its import fails anyway.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import py_compile
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

_IGNORED_FOLDERS = {".git", "node_modules", "__pycache__"}
_CHUNK = 32
"""Modules that a process compiles at a time."""


def main(cache: Path, *folders: Path) -> None:
    missing = []
    for path in _find_modules(folders):
        with suppress(OSError):
            compiled = _cached_path(cache, path)
            if compiled.exists():
                _copy(compiled, path)
            else:
                missing.append((compiled, path))
    if missing:
        with ProcessPoolExecutor() as processes:
            list(processes.map(_compile, missing, chunksize=_CHUNK))


def _find_modules(folders: tuple[Path, ...]) -> Iterator[Path]:
    for folder in folders:
        for parent, names, files in os.walk(folder):
            names[:] = [name for name in names if name not in _IGNORED_FOLDERS]
            yield from (Path(parent, file) for file in files if file.endswith(".py"))


def _cached_path(cache: Path, path: Path) -> Path:
    name = hashlib.sha256(importlib.util.MAGIC_NUMBER + path.read_bytes()).hexdigest()
    return cache / name[:2] / f"{name}.pyc"


def _compile(missing: tuple[Path, Path]) -> None:
    compiled, path = missing
    # The compiler has many ways to fail on what an author may write.
    with suppress(Exception):
        py_compile.compile(
            str(path),
            str(compiled),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        _copy(compiled, path)


def _copy(compiled: Path, path: Path) -> None:
    """Store the compiled module where Python looks for it; imports replace the path in it."""
    target = Path(importlib.util.cache_from_source(str(path)))
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(compiled, target)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
