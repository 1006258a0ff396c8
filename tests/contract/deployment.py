"""Deployment of a folder, as its own Git repository, on the live platform."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import httpx

from tests.file_lock import hold_lock
from tests.installation import MANAGE_SECONDS, open_to_builds
from tests.live import Live

HERE = Path(__file__).parent
IDENTITY = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
WEBHOOK_TOKEN = "s3cret"
# The deployments that several files of tests need: name, folder and variables.
SHARED: dict[str, tuple[Path, dict[str, str]]] = {
    "contract": (HERE / "project", {}),
    "store": (HERE / "store_project", {"LG_WEBHOOK_TOKEN": WEBHOOK_TOKEN}),
    "http": (HERE / "http_project", {}),
    "auth": (HERE / "auth_project", {}),
}


def create_shared(live: Live) -> None:
    """Create the deployments without waiting for their builds."""
    for name, (folder, variables) in SHARED.items():
        _create(live, folder, name, variables)


def deploy_shared(live: Live, name: str) -> str:
    """Return the agent's URL of one of `SHARED`, once it is built."""
    return deploy(live, SHARED[name][0], name, **SHARED[name][1])


def deploy(live: Live, folder: Path, name: str, **variables: str) -> str:
    """Deploy the folder once per test run, with these variables; return the agent's URL."""
    path = f"/v2/deployments/{_create(live, folder, name, variables)}"
    deadline = time.monotonic() + MANAGE_SECONDS
    with _api(live) as api:
        while True:
            deployment = api.get(path).raise_for_status().json()
            if url := deployment["source_config"]["custom_url"]:
                return str(url)
            revision_path = f"{path}/revisions/{deployment['latest_revision_id']}"
            status = api.get(revision_path).raise_for_status().json()["status"]
            assert not status.endswith("FAILED"), f"{name}: {status}"
            assert time.monotonic() < deadline, f"{name}: {status} after {MANAGE_SECONDS} s"
            time.sleep(0.25)


def _create(live: Live, folder: Path, name: str, variables: dict[str, str]) -> str:
    """Create the deployment unless another worker has, and return its id."""
    shared_folder = live.installation.data_dir.with_name("contract")
    shared_folder.mkdir(exist_ok=True)
    repository, id_file = shared_folder / name, shared_folder / f"{name}.id"
    with hold_lock(shared_folder / f"{name}.lock", MANAGE_SECONDS):
        if not id_file.exists():
            commit(folder, repository)
            variables = {"LANGSMITH_TRACING": "false", **variables}
            body = {
                "name": name,
                "source": "github",
                "source_config": {"repo_url": str(repository)},
                "secrets": [{"name": key, "value": value} for key, value in variables.items()],
            }
            with _api(live) as api:
                created = api.post("/v2/deployments", json=body).raise_for_status().json()
            id_file.write_text(created["id"])
    return id_file.read_text()


def _api(live: Live) -> httpx.Client:
    return httpx.Client(base_url=live.url, headers=live.headers, timeout=60)


def commit(folder: Path, repository: Path) -> None:
    shutil.copytree(folder, repository, ignore=shutil.ignore_patterns("__pycache__"))
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        [*IDENTITY, "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", str(repository), *arguments], check=True)
    open_to_builds(repository)
