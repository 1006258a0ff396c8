"""Tests written in JavaScript, each of them a pytest test.

The names are read from the files, so collection starts no process. A file runs once, when its
first test runs, and each test looks up its own result.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from config.env import BASE_DIR
from tests.compatibility.chosen_clients import node_modules, place_script

FOLDER = Path(__file__).with_name("javascript")
TIMEOUT_SECONDS = 180
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
    """Run the file and return the result of each of its tests."""
    node = shutil.which("node")
    assert node is not None
    with tempfile.TemporaryDirectory(prefix="slipway-scripts-") as directory:
        report = Path(directory, "report")
        completed = subprocess.run(
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
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        lines = report.read_text().splitlines() if report.exists() else []
    results = [ScriptResult(**json.loads(line)) for line in lines]
    assert results, completed.stdout + completed.stderr
    return {result.name: result for result in results}
