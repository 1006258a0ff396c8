"""The sample agent: a template folder of the platform, made into a Git repository here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from django.conf import settings

from apps.deployments.git import OWN_REPOSITORIES

TEMPLATE = Path(__file__).resolve().parent / "sample_agent"
NAME = "sample-agent"

# Fixed, so that one content has one commit id on every machine and at every start.
_AUTHOR = {
    "GIT_AUTHOR_NAME": "Slipway",
    "GIT_AUTHOR_EMAIL": "sample@slipway.invalid",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
}
_COMMITTER = {name.replace("AUTHOR", "COMMITTER"): value for name, value in _AUTHOR.items()}
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".venv", ".env")


def repository() -> tuple[str, str]:
    """The address of the sample's repository and its commit, made or brought up to date."""
    folder: Path = settings.DATA_DIR / OWN_REPOSITORIES
    with tempfile.TemporaryDirectory(dir=_parent(folder)) as draft:
        tree = Path(draft, "tree")
        shutil.copytree(TEMPLATE, tree, ignore=_LEFT_OUT)
        _git(tree, "init", "--quiet", "--initial-branch", "main")
        _git(tree, "add", "--all")
        _git(tree, "commit", "--quiet", "--no-gpg-sign", "--message", "The sample agent")
        commit = _git(tree, "rev-parse", "HEAD").strip()
        if not folder.exists() or _git(folder, "rev-parse", "HEAD").strip() != commit:
            shutil.rmtree(folder, ignore_errors=True)
            tree.rename(folder)
            _let_builds_read(folder)
    return folder.as_uri(), commit


def _parent(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.parent


def _let_builds_read(folder: Path) -> None:
    """Builds run as an organization's own user, whatever umask the platform was started with."""
    for parent, _, names in os.walk(folder):
        Path(parent).chmod(0o755)
        for name in names:
            Path(parent, name).chmod(0o644)


def _git(folder: Path, *words: str) -> str:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **_AUTHOR,
        **_COMMITTER,
    }
    argv = ["git", "-c", "safe.directory=*", "-c", "core.fileMode=false", "-C", str(folder), *words]
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout
