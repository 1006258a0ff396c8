"""What pyproject.toml asks for is what the lock files install."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from config.env import BASE_DIR

PROJECT = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())
RUNTIME = PROJECT["project"]["dependencies"]
DEVELOPMENT = PROJECT["dependency-groups"]["dev"]


def locked(name):
    text = (BASE_DIR / name).read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("file", "asked"),
    [("requirements.lock", RUNTIME), ("requirements-dev.lock", RUNTIME + DEVELOPMENT)],
)
def test_each_dependency_is_locked_at_a_version_that_is_asked_for(file, asked):
    versions = locked(file)
    requirements = [Requirement(line) for line in asked]

    missing = [
        str(requirement)
        for requirement in requirements
        if not requirement.specifier.contains(versions.get(requirement.name.lower(), "0"))
    ]

    assert missing == []


def test_both_files_agree():
    runtime, development = locked("requirements.lock"), locked("requirements-dev.lock")

    assert {name: development.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("file", ["requirements.lock", "requirements-dev.lock"])
def test_every_package_is_pinned_by_hash_and_no_address_is_named(file):
    text = (BASE_DIR / file).read_text()

    assert "://" not in text
    assert text.count("--hash=sha256:") >= len(locked(file))
