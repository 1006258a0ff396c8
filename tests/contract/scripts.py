"""Checks written in JavaScript, each of them a check of pytest.

The names are read from the files, so that collecting starts nothing; a file runs once, when its
first check is asked for, and each check then looks up what became of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from config.env import BASE_DIR

FOLDER = Path(__file__).with_name("javascript")
PATIENCE_SECONDS = 150
_CHECK = re.compile(r'^test\("(.+?)", ', re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    name: str
    passed: bool
    error: str | None


def checks(folder: Path = FOLDER) -> list[tuple[str, str]]:
    """Each file with each of its checks."""
    return [
        (path.name, name)
        for path in sorted(folder.glob("*.mjs"))
        for name in _CHECK.findall(path.read_text())
    ]


def missing(package: str = "@langchain/langgraph-sdk") -> str | None:
    """Why the checks can't run on this machine."""
    if shutil.which("node") is None:
        return "there is no Node"
    if not (BASE_DIR / "node_modules" / package).exists():
        return "`npm install` puts the client there"
    return None


def run(name: str, *, folder: Path = FOLDER, **environment: str) -> dict[str, Outcome]:
    """What became of each check of that file, also when the file does not end."""
    node = shutil.which("node")
    assert node is not None
    process = subprocess.Popen(
        # The flag is for Node 20; later ones have a WebSocket without it.
        [
            *(node, "--experimental-websocket", "--no-warnings"),
            *("--test-reporter", str(FOLDER / "reporter.mjs"), str(folder / name)),
        ],
        env={**os.environ, **environment},
        cwd=BASE_DIR,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    output, problem = _output_of(process)
    lines = [line for line in output.splitlines(keepends=True) if line.endswith("\n")]
    outcomes = {
        check: Outcome(check, False, problem) for file, check in checks(folder) if file == name
    }
    return outcomes | {
        outcome.name: outcome for outcome in (Outcome(**json.loads(line)) for line in lines)
    }


def _output_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What the process printed, and why a check that it did not name has no outcome."""
    try:
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        output, errors = "", ""
        # A process that left the group may still hold the pipes.
        with suppress(subprocess.TimeoutExpired):
            output, errors = process.communicate(timeout=10)
        return output, f"The file did not end in {PATIENCE_SECONDS} s. {errors}"
    except BaseException:
        _kill_group(process)
        raise
    return output, f"The check did not run. {errors}"


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
