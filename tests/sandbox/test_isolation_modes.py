"""Isolation modes of a machine, and the behaviour with partial or no isolation."""

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
from tests.installation import PATIENCE_SECONDS

from .conftest import finish
from .test_lifetime import SLEEPING_PROCESS_TREE, wait_until_gone

SYSTEM_PYTHON = Path("/usr/bin/python3")
LANDLOCK = Capability(Mode.LANDLOCK, "")
NONE = Capability(Mode.NONE, "This machine offers nothing.")

needs_landlock_as_root = pytest.mark.skipif(
    os.geteuid() != 0 or syscalls.get_landlock_version() == 0 or not SYSTEM_PYTHON.exists(),
    reason="isolation without namespaces needs root, Landlock and a Python that all users can run",
)


@pytest.fixture
def open_policy(folders):
    """A policy whose folders every user may enter, as no namespace can hide their path."""
    folder = folders.own.parent
    while folder != folder.parent:
        if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o11 == 0:
            folder.chmod(folder.stat().st_mode | 0o11)
        folder = folder.parent
    return folders.policy(python=None)


def start(policy, script, isolation, *arguments):
    command = [str(SYSTEM_PYTHON.resolve()), "-I", "-S", "-c", script, *map(str, arguments)]
    return launcher.start(
        policy, command, isolation=isolation, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_probe_reports_namespaces_and_the_user():
    user = (
        "a separate user for each organization"
        if os.geteuid() == 0
        else ("the user who started the platform")
    )

    assert probe().mode is Mode.BUBBLEWRAP
    assert probe().is_isolated
    assert probe().description == f"Agent code runs in its own namespaces (bubblewrap), as {user}."


def test_agent_code_without_isolation_requires_the_operators_permission(open_policy, monkeypatch):
    monkeypatch.setattr(capability, "probe", lambda: NONE)

    with pytest.raises(SandboxUnavailable, match="offers nothing"):
        spawn(open_policy, ["/bin/true"])
    with spawn(open_policy, ["/bin/true"], allow_unsandboxed=True) as process:
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_failing_bubblewrap_stops_the_start(folders, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    isolation = Capability(Mode.BUBBLEWRAP, "", Binary(broken, tmp_path))

    with pytest.raises(SandboxSetupFailed, match="status 1"):
        launcher.start(
            folders.policy(), ["/bin/true"], isolation=isolation, stderr=subprocess.DEVNULL
        )


@needs_landlock_as_root
def test_landlock_exposes_only_the_paths_of_the_policy(folders, open_policy):
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
        open_policy,
        script,
        LANDLOCK,
        folders.data / "secret",
        folders.other / "agent.py",
        "/proc/1/environ",
        folders.own / "agent.py",
    )
    result = finish(process)

    assert result.output.splitlines() == [
        str(folders.uid),
        "PermissionError",
        "PermissionError",
        "PermissionError",
        "print('hello')",
        "PermissionError",
    ]
    assert result.code == 0


@needs_landlock_as_root
@pytest.mark.parametrize("isolation", [LANDLOCK, NONE])
def test_killing_a_process_without_namespaces_ends_its_tree(folders, open_policy, isolation):
    with start(open_policy, SLEEPING_PROCESS_TREE, isolation) as process:
        assert read_line(process.stdout) == b"ready\n"
        pids = usage.process_tree(process.pid)
        process.kill()
        process.wait(PATIENCE_SECONDS)

    assert len(pids) == 5
    assert wait_until_gone(pids) == []


@needs_landlock_as_root
def test_policy_that_requires_namespaces_is_rejected_without_them(folders, open_policy):
    moved = replace(open_policy, read_only=(Bind(folders.own, Path("/opt/agent")),))

    with pytest.raises(InvalidPolicy, match="at another path"):
        start(moved, "pass", LANDLOCK)
    with pytest.raises(InvalidPolicy, match=r"Network\.NONE"):
        start(replace(open_policy, network=Network.NONE), "pass", LANDLOCK)
    with pytest.raises(InvalidPolicy, match="AGENT_NETWORK=shared"):
        start(replace(open_policy, network=Network.PROXIED), "pass", LANDLOCK)


def test_unsandboxed_code_has_the_network_of_the_machine(open_policy):
    policy = replace(open_policy, network=Network.PROXIED)
    script = "import os; print(sorted(name for name in os.environ if 'PROXY' in name))"

    result = finish(start(policy, script, NONE))

    assert (result.code, result.output) == (0, "[]")


@pytest.mark.skipif(os.geteuid() == 0, reason="root assigns other uids")
def test_sandbox_of_an_ordinary_user_keeps_its_uid(folders):
    folders.run("import sys; open(sys.argv[1] + '/made', 'w')", folders.scratch, uid=12345)

    assert (folders.scratch / "made").stat().st_uid == os.getuid()
