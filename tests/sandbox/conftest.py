"""A small world around the sandbox: what a platform keeps on disk, and one revision's folder."""

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
from tests.required_tools import skip_now

# One of an organization, where the platform runs as root and has such to give.
AGENT_UID = 1_000_007 if os.geteuid() == 0 else None
PYTHON = str(Path(sys.executable).resolve())


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str
    stopped_because: str | None


@dataclass(frozen=True)
class World:
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

    def run(self, script: str, *arguments: object, timeout: float = 50, **changes) -> Outcome:
        """Run Python code inside; what it prints, errors too, is the outcome's output."""
        process = self.start(
            script,
            *map(str, arguments),
            policy=self.policy(**changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return finish(process, timeout)


def finish(process: SandboxedProcess, timeout: float = 50) -> Outcome:
    with process:
        code = process.wait(timeout)
        output = process.stdout.read().decode() if process.stdout else ""
    return Outcome(code, output.strip(), process.stopped_because)


@pytest.fixture(autouse=True, scope="session")
def _isolation():
    if probe().mode.value != "bubblewrap":
        skip_now(probe().description)


@pytest.fixture
def world(tmp_path) -> World:
    uid = AGENT_UID
    tmp_path = tmp_path.resolve()
    places = {name: tmp_path / name for name in ("data", "other", "services")}
    for place in places.values():
        prepare_dir(place, uid=None)
    (places["data"] / "secret").write_text("the key of everything")
    (places["other"] / "agent.py").write_text("TOKEN = 'of another organization'")
    own = prepare_dir(tmp_path / "own", uid=uid)
    (own / "agent.py").write_text("print('hello')")
    prepare_dir(own, uid=uid)
    scratch = prepare_dir(tmp_path / "scratch", uid=uid)
    return World(own=own, scratch=scratch, uid=uid, **places)


@pytest.fixture
def limits():
    """The usual limits with some of them changed."""
    return lambda **changes: replace(Limits(), **changes)
