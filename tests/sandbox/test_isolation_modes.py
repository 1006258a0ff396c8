"""Which isolation a machine offers, and what happens where there is less or none."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from apps.deployments.sandbox import (
    Bind,
    Capability,
    InvalidPolicy,
    Mode,
    Network,
    SandboxSetupFailed,
    SandboxUnavailable,
    capability,
    launcher,
    probe,
    spawn,
    usage,
)
from apps.deployments.sandbox.bubblewrap import Binary
from apps.deployments.sandbox.stub import syscalls
from tests.child_output import read_line

from .conftest import finish
from .test_lifetime import STAYS, wait_until_gone

SYSTEM_PYTHON = Path("/usr/bin/python3")
LANDLOCK = Capability(Mode.LANDLOCK, "")
NONE = Capability(Mode.NONE, "This machine offers nothing.")

needs_landlock_as_root = pytest.mark.skipif(
    os.geteuid() != 0 or syscalls.landlock_version() == 0 or not SYSTEM_PYTHON.exists(),
    reason="the way without namespaces needs root, Landlock and a Python that all users can run",
)


@pytest.fixture
def reachable(world):
    """The world's policy where every user may walk to its folders: nothing can be staged."""
    folder = world.own.parent
    while folder != folder.parent:
        if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o11 == 0:
            folder.chmod(folder.stat().st_mode | 0o11)
        folder = folder.parent
    return world.policy(python=None)


def start(policy, script, means, *arguments):
    command = [str(SYSTEM_PYTHON.resolve()), "-I", "-S", "-c", script, *map(str, arguments)]
    return launcher.start(
        policy, command, isolation=means, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_probe_reports_namespaces_and_the_user():
    who = (
        "a separate user for each organization"
        if os.geteuid() == 0
        else ("the user who started the platform")
    )

    assert probe().mode is Mode.BUBBLEWRAP
    assert probe().is_isolated
    assert probe().description == f"Agent code runs in its own namespaces (bubblewrap), as {who}."


def test_agent_code_without_isolation_requires_the_operators_permission(reachable, monkeypatch):
    monkeypatch.setattr(capability, "probe", lambda: NONE)

    with pytest.raises(SandboxUnavailable, match="offers nothing"):
        spawn(reachable, ["/bin/true"])
    with spawn(reachable, ["/bin/true"], allow_unsandboxed=True) as process:
        assert process.wait(30) == 0


def test_a_bubblewrap_that_fails_is_not_used(world, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    means = Capability(Mode.BUBBLEWRAP, "", Binary(broken, tmp_path))

    with pytest.raises(SandboxSetupFailed, match="status 1"):
        launcher.start(world.policy(), ["/bin/true"], isolation=means, stderr=subprocess.DEVNULL)


@needs_landlock_as_root
def test_landlock_exposes_only_the_paths_of_the_policy(world, reachable):
    script = """
import os, sys
print(os.getuid())
for path in sys.argv[1:]:
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
try:
    os.kill(os.getppid(), 9)
except OSError as error:
    print(type(error).__name__)
open(os.environ["TMPDIR"] + "/mine", "w")
"""
    process = start(
        reachable,
        script,
        LANDLOCK,
        world.data / "secret",
        world.other / "agent.py",
        "/proc/1/environ",
        world.own / "agent.py",
    )
    outcome = finish(process)

    assert outcome.output.splitlines() == [
        str(world.uid),
        "PermissionError",
        "PermissionError",
        "PermissionError",
        "print('hello')",
        "PermissionError",
    ]
    assert outcome.code == 0


@needs_landlock_as_root
@pytest.mark.parametrize("means", [LANDLOCK, NONE])
def test_without_namespaces_the_whole_tree_ends_as_well(world, reachable, means):
    with start(reachable, STAYS, means) as process:
        assert read_line(process.stdout) == b"ready\n"
        pids = usage.process_tree(process.pid)
        process.kill()
        process.wait(30)

    assert len(pids) == 5
    assert wait_until_gone(pids, 10) == []


@needs_landlock_as_root
def test_policy_that_requires_namespaces_is_rejected_without_them(world, reachable):
    moved = replace(reachable, read_only=(Bind(world.own, Path("/opt/agent")),))

    with pytest.raises(InvalidPolicy, match="at another path"):
        start(moved, "pass", LANDLOCK)
    with pytest.raises(InvalidPolicy, match=r"Network\.NONE"):
        start(replace(reachable, network=Network.NONE), "pass", LANDLOCK)


@pytest.mark.skipif(os.geteuid() == 0, reason="root has users to give")
def test_sandbox_of_an_ordinary_user_keeps_its_uid(world):
    world.run("import sys; open(sys.argv[1] + '/made', 'w')", world.scratch, uid=12345)

    assert (world.scratch / "made").stat().st_uid == os.getuid()
