"""Folders around a sandbox: data of the platform, other revisions, and the agent's revision."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from apps.deployments.sandbox import (
    Limits,
    Policy,
    SandboxedProcess,
    prepare_dir,
    probe,
    spawn,
)
from tests.installation import PATIENCE_SECONDS
from tests.required_tools import skip_now

# The uid of an organization; only a platform that runs as root assigns such uids.
AGENT_UID = 1_000_007 if os.geteuid() == 0 else None
PYTHON = str(Path(sys.executable).resolve())


@dataclass(frozen=True)
class CommandResult:
    code: int
    output: str
    stopped_because: str | None


@dataclass(frozen=True)
class SandboxFolders:
    data: Path
    own: Path
    other: Path
    scratch: Path
    services: Path
    uid: int | None

    def policy(self, **changes) -> Policy:
        base = Policy(cwd=self.own, read_only=(self.own,), writable=(self.scratch,), uid=self.uid)
        return replace(base, **changes)

    def start(self, script: str, *arguments: str, policy: Policy | None = None, **streams):
        code = textwrap.dedent(script)
        command = [PYTHON, "-I", "-S", "-c", code, *arguments]
        return spawn(policy or self.policy(), command, **streams)

    def run(
        self, script: str, *arguments: object, timeout: float = PATIENCE_SECONDS, **changes
    ) -> CommandResult:
        """Run Python code in the sandbox; the output includes its errors."""
        process = self.start(
            script,
            *map(str, arguments),
            policy=self.policy(**changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return finish(process, timeout)


def finish(process: SandboxedProcess, timeout: float = PATIENCE_SECONDS) -> CommandResult:
    with process:
        code = process.wait(timeout)
        output = process.stdout.read().decode() if process.stdout else ""
    return CommandResult(code, output.strip(), process.stopped_because)


@pytest.fixture(autouse=True, scope="session")
def _isolation():
    if probe().mode.value != "bubblewrap":
        skip_now(probe().description)


@pytest.fixture
def folders(tmp_path) -> SandboxFolders:
    uid = AGENT_UID
    tmp_path = tmp_path.resolve()
    paths = {name: tmp_path / name for name in ("data", "other", "services")}
    for path in paths.values():
        prepare_dir(path, uid=None)
    (paths["data"] / "secret").write_text("the key of everything")
    (paths["other"] / "agent.py").write_text("TOKEN = 'of another organization'")
    own = prepare_dir(tmp_path / "own", uid=uid)
    (own / "agent.py").write_text("print('hello')")
    prepare_dir(own, uid=uid)
    scratch = prepare_dir(tmp_path / "scratch", uid=uid)
    return SandboxFolders(own=own, scratch=scratch, uid=uid, **paths)


@pytest.fixture
def limits():
    """Return a function that changes some of the default limits."""
    return lambda **changes: replace(Limits(), **changes)
