"""Selection of the Python interpreter of a revision."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.deployments import interpreters


@pytest.fixture(autouse=True)
def clear_cache() -> Iterator[None]:
    """Clear the cache of interpreters before and after each test."""
    interpreters.find_interpreter.cache_clear()
    yield
    interpreters.find_interpreter.cache_clear()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without a Python in it."""
    for variable in ("PYENV_ROOT", "ASDF_DATA_DIR", "MISE_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def install(folder: Path, version: str) -> Path:
    """Write a program that prints its path, as an interpreter does."""
    program = folder / "bin" / f"python{version}"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$0"\n')
    program.chmod(0o755)
    return program


def test_default_interpreter_is_the_platforms_own() -> None:
    interpreter = interpreters.find_interpreter(None)

    assert (
        interpreter == Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}").resolve()
    )


@pytest.mark.parametrize(
    "folder", [".pyenv/versions", ".asdf/installs/python", ".local/share/mise/installs/python"]
)
def test_interpreter_of_a_version_manager_is_found_behind_its_shims(
    home: Path, folder: str
) -> None:
    install(home / folder / "3.97.9", "3.97")
    install(home / folder / "3.97.11t", "3.97")
    newest = install(home / folder / "3.97.10", "3.97")

    assert interpreters.find_interpreter("3.97") == newest


def test_folder_of_a_version_manager_is_configurable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(home / "elsewhere/versions/3.97.1", "3.97")
    monkeypatch.setenv("PYENV_ROOT", str(home / "elsewhere"))

    assert interpreters.find_interpreter("3.97") == program


def test_an_environment_keeps_its_interpreter_when_a_newer_patch_arrives(
    home: Path, tmp_path: Path
) -> None:
    original = install(home / ".pyenv/versions/3.97.1", "3.97")
    environment = tmp_path / "python"
    environment.symlink_to(original)

    newer = install(home / ".pyenv/versions/3.97.2", "3.97")

    assert interpreters.select_interpreter(environment, "3.97") == original
    assert interpreters.find_interpreter("3.97") == newer


def test_environment_cannot_select_an_untrusted_interpreter(home: Path, tmp_path: Path) -> None:
    program = install(home / ".pyenv/versions/3.97.1", "3.97")
    environment = tmp_path / "python"
    environment.symlink_to(install(tmp_path / "revision", "3.97"))

    assert interpreters.select_interpreter(environment, "3.97") == program


def test_missing_python_version_is_named_in_the_error(home: Path) -> None:
    with pytest.raises(
        interpreters.InterpreterNotFound, match=r"This machine has no Python 3\.97;"
    ):
        interpreters.find_interpreter("3.97")
