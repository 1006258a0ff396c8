"""Deployment of a folder, as its own Git repository, on the live platform."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.file_lock import hold_lock
from tests.installation import MANAGE_SECONDS, open_to_builds
from tests.live import Live

IDENTITY = ["-c", "user.name=t", "-c", "user.email=t@example.com"]


def deploy(live: Live, folder: Path, name: str, *variables: str) -> str:
    """Deploy the folder once per test run, with `KEY=VALUE` variables; return the agent's URL."""
    shared_folder = live.installation.data_dir.with_name("contract")
    shared_folder.mkdir(exist_ok=True)
    repository, url_file = shared_folder / name, shared_folder / f"{name}.url"
    with hold_lock(shared_folder / f"{name}.lock", MANAGE_SECONDS):
        if not url_file.exists():
            commit(folder, repository)
            options = [word for variable in variables for word in ("--env", variable)]
            completed = live.manage(
                "deploy", "--organization", "Slipway", "--name", name, "--git", str(repository),
                "--env", "LANGSMITH_TRACING=false", *options, "--wait", "--json",
            )  # fmt: skip
            url_file.write_text(json.loads(completed.stdout)["agent_url"])
    return url_file.read_text()


def commit(folder: Path, repository: Path) -> None:
    shutil.copytree(folder, repository, ignore=shutil.ignore_patterns("__pycache__"))
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*IDENTITY, "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", str(repository), *arguments], check=True)
    open_to_builds(repository)
