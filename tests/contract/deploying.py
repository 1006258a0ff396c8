"""A folder as a repository of its own, deployed on the live platform."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.file_lock import hold_lock
from tests.installation import MANAGE_SECONDS
from tests.live import Live

IDENTITY = ["-c", "user.name=t", "-c", "user.email=t@example.com"]


def deploy(live: Live, folder: Path, name: str, *variables: str) -> str:
    """The agent's address; deployed once for the test run, whoever asks first.

    `variables` are `KEY=VALUE`.
    """
    place = live.installation.data_dir.with_name("contract")
    place.mkdir(exist_ok=True)
    repository, fact = place / name, place / f"{name}.url"
    with hold_lock(place / f"{name}.lock", MANAGE_SECONDS):
        if not fact.exists():
            commit(folder, repository)
            words = [word for variable in variables for word in ("--env", variable)]
            done = live.manage(
                "deploy", "--organization", "Slipway", "--name", name, "--git", str(repository),
                "--env", "LANGSMITH_TRACING=false", *words, "--wait", "--json",
            )  # fmt: skip
            fact.write_text(json.loads(done.stdout)["agent_url"])
    return fact.read_text()


def commit(folder: Path, repository: Path) -> None:
    shutil.copytree(folder, repository, ignore=shutil.ignore_patterns("__pycache__"))
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*IDENTITY, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(repository), *words], check=True)
