"""Modules of a build are compiled once for all revisions that have the same source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from apps.deployments.builds.venv import _COMPILER


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "compiled"


def compile_folder(cache: Path, folder: Path) -> None:
    command = [sys.executable, "-I", str(_COMPILER), str(cache), str(folder)]
    subprocess.run(command, check=True, timeout=120)


def create_project(folder: Path, **modules: str) -> Path:
    folder.mkdir()
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def list_compiled(folder: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in folder.glob("__pycache__/*.pyc"))


def read_modification_times(cache: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("*.pyc")}


def test_modules_with_the_same_source_are_compiled_once(cache, tmp_path):
    first = create_project(tmp_path / "first", agent="x = 1", helper="y = 2")
    compile_folder(cache, first)
    before = read_modification_times(cache)

    second = create_project(tmp_path / "second", agent="x = 1", helper="y = 3")
    compile_folder(cache, second)

    after = read_modification_times(cache)
    assert (len(before), len(after)) == (2, 3)
    assert before.items() <= after.items()
    assert list_compiled(first) == list_compiled(second) == ["agent", "helper"]


def test_a_copied_module_is_imported_with_its_own_path(cache, tmp_path):
    source = "def fail():\n    raise RuntimeError\n"
    compile_folder(cache, create_project(tmp_path / "first", agent=source))
    second = create_project(tmp_path / "second", agent=source)
    compile_folder(cache, second)

    program = (
        "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import agent;"
        "print(agent.__cached__, agent.fail.__code__.co_filename)"
    )
    # A module that is not read from its compiled form fails here.
    (second / "agent.py").write_text("import this_does_not_exist")
    output = subprocess.check_output([sys.executable, "-I", "-c", program, str(second)], text=True)

    cached, file = output.split()
    assert Path(cached).parent == second / "__pycache__"
    assert file == str(second / "agent.py")


def test_a_module_with_a_syntax_error_is_left_out(cache, tmp_path):
    folder = create_project(
        tmp_path / "project", agent="x = 1", broken="x = = 1", null="x = 1\0", deep="(" * 10_000
    )

    compile_folder(cache, folder)

    assert list_compiled(folder) == ["agent"]


def test_folders_of_git_and_node_are_not_compiled(cache, tmp_path):
    folder = create_project(tmp_path / "project", agent="x = 1")
    ignored = [create_project(folder / name, module="y = 2") for name in (".git", "node_modules")]

    compile_folder(cache, folder)

    assert list_compiled(folder) == ["agent"]
    assert [list_compiled(path) for path in ignored] == [[], []]
