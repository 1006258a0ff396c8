"""The lock files install the dependencies of pyproject.toml."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from config.env import BASE_DIR

PROJECT = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())
RUNTIME = PROJECT["project"]["dependencies"]
DEVELOPMENT = PROJECT["dependency-groups"]["dev"]


def read_versions(name):
    text = (BASE_DIR / name).read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("file", "dependencies"),
    [("requirements.lock", RUNTIME), ("requirements-dev.lock", RUNTIME + DEVELOPMENT)],
)
def test_each_dependency_is_locked_at_an_allowed_version(file, dependencies):
    versions = read_versions(file)
    requirements = [Requirement(line) for line in dependencies]

    missing = [
        str(requirement)
        for requirement in requirements
        if not requirement.specifier.contains(versions.get(requirement.name.lower(), "0"))
    ]

    assert missing == []


def test_both_lock_files_have_the_same_versions():
    runtime, development = (
        read_versions("requirements.lock"),
        read_versions("requirements-dev.lock"),
    )

    assert {name: development.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("file", ["requirements.lock", "requirements-dev.lock"])
def test_every_package_is_pinned_by_hash_without_an_address(file):
    text = (BASE_DIR / file).read_text()

    assert "://" not in text
    assert text.count("--hash=sha256:") >= len(read_versions(file))
