"""The Python version of a build whose `langgraph.json` names none."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from apps.deployments import interpreters, langgraph_json
from apps.deployments.build_dirs import FileNotReadable
from apps.deployments.builds.build_context import BuildFailed
from apps.deployments.builds.python_version import choose_version

GRAPHS = {"agent": "./agent.py:graph"}


class FakeContext:
    """A build of the given pyproject.toml files; records the lines of its log."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.lines: list[str] = []
        self.directory = self.log = self

    def read_text(self, path: str) -> str:
        if path not in self.files:
            raise FileNotReadable(path)
        return self.files[path]

    def write(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The versions that the machine has, besides 3.11.7 of the platform."""
    versions = {"3.13", "3.14"}

    def find(version: str) -> Path:
        if version not in versions:
            raise interpreters.InterpreterNotFound
        return Path(version)

    monkeypatch.setattr(interpreters, "find_interpreter", find)
    monkeypatch.setattr(platform, "python_version", lambda: "3.11.7")
    return versions


def choose(requirement: str | None, **config: Any) -> tuple[str | None, list[str]]:
    lines = [] if requirement is None else [f"requires-python = {requirement}"]
    context = FakeContext({"app/pyproject.toml": "\n".join(["[project]", *lines])})
    text = json.dumps({"dependencies": [".."], "graphs": GRAPHS, **config})
    project = langgraph_json.parse(
        text, path="app/langgraph.json", file_type=lambda path: "file" if "." in path else "folder"
    )
    project.folders[:] = ["."]
    return choose_version(context, project), context.lines  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("requirement", "version"),
    [
        (None, None),
        ('">=3.9"', None),
        ('">=3.11.7,<4.0"', None),
        ('">=3.12"', "3.13"),
        ("'>=3.14'", "3.14"),
        ('"nonsense"', None),
    ],
)
def test_oldest_installed_version_that_the_project_accepts(
    requirement: str | None, version: str | None
) -> None:
    assert choose(requirement)[0] == version


def test_choice_is_explained_in_the_log() -> None:
    assert choose('">=3.12"')[1] == [
        "    Python 3.13, since app/pyproject.toml requires Python >=3.12"
    ]


def test_langgraph_json_takes_precedence() -> None:
    assert choose('">=3.12"', python_version="3.11") == ("3.11", [])


def test_version_that_the_machine_lacks_is_named(installed: set[str]) -> None:
    installed.clear()

    with pytest.raises(BuildFailed) as caught:
        choose('">=3.12"')

    assert str(caught.value) == (
        "app/pyproject.toml requires Python >=3.12. The platform runs Python 3.11.7, and this"
        " machine has no other version that fits."
    )
