"""A malicious agent and build reach no file, process or privilege, in any isolation mode."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.sandbox.test_network_attacks import (
    ORDINARY_UID,
    is_usable_by_others,
    make_environment,
    run_program,
)

AGENT_ATTEMPTS, BUILD_ATTEMPTS = 60, 57

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the modes need root")


def run_attacks(python: Path, *arguments: str) -> dict[str, dict[str, str]]:
    results: dict[str, dict[str, str]] = run_program(
        [str(python), "-m", "tests.sandbox.platform_attacks", *arguments],
        PLATFORM_SECRET="of the process that starts the sandbox",
    )
    return results


def check(results: dict[str, dict[str, str]], modes: set[str], record_property) -> None:
    roles = {"agent": AGENT_ATTEMPTS, "build": BUILD_ATTEMPTS}
    assert set(results) == {f"{mode}, {role}" for mode in modes for role in roles}
    for mode, attempts in results.items():
        reached = {attempt for attempt, result in attempts.items() if result == "reached"}
        record_property(mode, f"{len(attempts) - len(reached)} of {len(attempts)} refused")
        assert reached == set(), mode
        assert len(attempts) == roles[mode.rpartition(" ")[2]]


def test_root_platform(record_property):
    results = run_attacks(Path(sys.executable))

    check(results, {"root, bubblewrap", "root, Landlock", "root, none"}, record_property)


@pytest.mark.skipif(
    os.geteuid() != 0 or not is_usable_by_others(),
    reason="another user cannot enter this folder, or the system has another Python",
)
def test_platform_of_an_ordinary_user(record_property):
    with tempfile.TemporaryDirectory(prefix="ordinary-user-") as folder:
        results = run_attacks(make_environment(Path(folder)), str(ORDINARY_UID))

    check(results, {"ordinary user, bubblewrap", "ordinary user, none"}, record_property)
