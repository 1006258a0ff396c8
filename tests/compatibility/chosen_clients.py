"""The public clients that a test run uses: those of this repository, or those of another folder.

A pytest plugin (`-p tests.compatibility.chosen_clients`) puts the folder's Python packages before
those of `.venv`, before anything imports a client. The platform under test does not see them.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from config.env import BASE_DIR

FOLDER = "SLIPWAY_TEST_CLIENTS"
"""The environment variable with the folder: `python` in it, and `node_modules`."""

OPTIONAL_PACKAGES = ("httpx2",)
"""Clients prefer these where they are installed; an older client must not see those of `.venv`."""


def chosen_folder() -> Path | None:
    folder = os.environ.get(FOLDER)
    return Path(folder) if folder else None


def _choose() -> None:
    folder = chosen_folder()
    if folder is None or "langsmith" in sys.modules:
        return
    # Processes of pytest-xdist inherit the path.
    if str(folder / "python") not in sys.path:
        sys.path.insert(0, str(folder / "python"))
    hidden = [name for name in OPTIONAL_PACKAGES if not (folder / "python" / name).exists()]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails
    importlib.import_module("langsmith._openapi_client")
    # Other clients, such as that of MCP, need them.
    for name in hidden:
        del sys.modules[name]
    path = sys.modules["langsmith"].__file__ or ""
    assert path.startswith(str(folder)), "a client was imported before it could be chosen"


# When the plugin is imported: the first `conftest.py` is too late.
_choose()


def node_modules() -> Path:
    return (chosen_folder() or BASE_DIR) / "node_modules"


def place_script(path: Path) -> Path:
    """Return where the JavaScript file finds the chosen packages: a copy next to them, or itself.

    Node looks for packages in the folders above a script. Its whole folder is copied.
    """
    folder = chosen_folder()
    if folder is None:
        return path
    copy = folder / "scripts" / path.parent.relative_to(BASE_DIR)
    shutil.copytree(path.parent, copy, dirs_exist_ok=True, ignore=_ignore_all_but_scripts)
    return copy / path.name


def _ignore_all_but_scripts(folder: str, names: list[str]) -> list[str]:
    return [
        name
        for name in names
        if Path(folder, name).is_dir() or Path(name).suffix not in {".js", ".mjs", ".jsx"}
    ]


def requires_client(name: str, versions: str, feature: str) -> pytest.MarkDecorator:
    """Skip a test of an API that other versions of the Python client do not have."""
    version = metadata.version(name)
    return pytest.mark.skipif(
        not SpecifierSet(versions).contains(version, prereleases=True),
        reason=f"{name} {version} has no {feature}: it takes {versions}",
    )
