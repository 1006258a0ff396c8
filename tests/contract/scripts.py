"""Checks written in JavaScript, each of them a check of pytest.

The names are read from the files, so that collecting starts nothing; a file runs once, when its
first check is asked for, and each check then looks up what became of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from config.env import BASE_DIR

FOLDER = Path(__file__).with_name("javascript")
PATIENCE_SECONDS = 180
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
    """What became of each check of that file."""
    node = shutil.which("node")
    assert node is not None
    done = subprocess.run(
        # The flag is for Node 20; later ones have a WebSocket without it.
        [
            *(node, "--experimental-websocket", "--no-warnings"),
            *("--test-reporter", str(FOLDER / "reporter.mjs"), str(folder / name)),
        ],
        env={**os.environ, **environment},
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    outcomes = [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]
    assert outcomes, done.stderr
    return {outcome.name: outcome for outcome in outcomes}
