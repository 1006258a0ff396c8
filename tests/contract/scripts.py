"""Tests written in JavaScript, each of them a pytest test.

The names are read from the files, so collection starts no process. A file runs once, when its
first test runs, and each test looks up its own result.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from config.env import BASE_DIR
from tests.compatibility.chosen_clients import node_modules, place_script

FOLDER = Path(__file__).with_name("javascript")
TIMEOUT_SECONDS = 150
_CHECK = re.compile(r'^test\("(.+?)", ', re.MULTILINE)


@dataclass(frozen=True)
class ScriptResult:
    name: str
    passed: bool
    error: str | None


def list_tests(folder: Path = FOLDER) -> list[tuple[str, str]]:
    """Return each file with each of its tests."""
    return [
        (path.name, name)
        for path in sorted(folder.glob("*.mjs"))
        for name in _CHECK.findall(path.read_text())
    ]


def missing_reason(package: str = "@langchain/langgraph-sdk") -> str | None:
    """Return why the tests cannot run on this machine, or None."""
    if shutil.which("node") is None:
        return "there is no Node"
    if not (node_modules() / package).exists():
        return "`npm install` puts the client there"
    return None


def run_file(name: str, *, folder: Path = FOLDER, **environment: str) -> dict[str, ScriptResult]:
    """Run the file and return the result of each of its tests, also if it does not end."""
    node = shutil.which("node")
    assert node is not None
    with tempfile.TemporaryDirectory(prefix="slipway-scripts-") as directory:
        report = Path(directory, "report")
        process = subprocess.Popen(
            # The flag is for Node 20; later ones have a WebSocket without it.
            [
                *(node, "--experimental-websocket", "--no-warnings"),
                *("--test-reporter", str(FOLDER / "reporter.mjs")),
                # Clients print progress to the standard output.
                *("--test-reporter-destination", str(report)),
                str(place_script(folder / name)),
            ],
            env={**os.environ, **environment},
            cwd=BASE_DIR,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        problem = _wait_for_end(process)
        text = report.read_text() if report.exists() else ""
    results = {
        check: ScriptResult(check, passed=False, error=problem)
        for file, check in list_tests(folder)
        if file == name
    }
    complete_lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    for line in complete_lines:
        result = ScriptResult(**json.loads(line))
        results[result.name] = result
    return results


def _wait_for_end(process: subprocess.Popen[str]) -> str:
    """Return why a test that the report does not name has no result of its own."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        output = ""
        # A process that left the group may still hold the pipe.
        with suppress(subprocess.TimeoutExpired):
            output, _ = process.communicate(timeout=10)
        return f"The file did not end in {TIMEOUT_SECONDS} s. {output}"
    except BaseException:
        _kill_group(process)
        raise
    return f"The test did not run. {output}"


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
