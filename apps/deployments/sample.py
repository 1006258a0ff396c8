"""The sample agent: a template folder of the platform, made into a Git repository here."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from dulwich.errors import NotGitRepository
from dulwich.index import commit_tree
from dulwich.objects import Blob, Commit, ObjectID
from dulwich.refs import HEADREF
from dulwich.repo import Repo

from apps.deployments.git import OWN_REPOSITORIES

TEMPLATE = Path(__file__).resolve().parent / "sample_agent"
NAME = "sample-agent"

# Fixed, so that one content has one commit id on every machine and at every start.
_AUTHOR = b"Slipway <sample@slipway.invalid>"
_WRITTEN_AT = 1_767_225_600  # the first moment of 2026
_ORDINARY_FILE = 0o100644
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".venv", ".env")


def repository() -> tuple[str, str]:
    """The address of the sample's bare repository and its commit, made or brought up to date."""
    folder: Path = settings.DATA_DIR / OWN_REPOSITORIES
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
        made = Path(draft, "repository")
        commit = _make(made)
        if _head(folder) != commit:
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
            _let_builds_read(folder)
    return folder.as_uri(), commit.decode()


def _make(folder: Path) -> ObjectID:
    with Repo.init_bare(folder, mkdir=True, default_branch=b"main") as made:
        commit = Commit()
        commit.tree = commit_tree(made.object_store, _blobs(made))
        commit.author = commit.committer = _AUTHOR
        commit.author_time = commit.commit_time = _WRITTEN_AT
        commit.author_timezone = commit.commit_timezone = 0
        commit.message = b"The sample agent\n"
        made.object_store.add_object(commit)
        made.refs[HEADREF] = commit.id
        return commit.id


def _blobs(made: Repo) -> Iterator[tuple[bytes, ObjectID, int]]:
    for parent, folders, names in os.walk(TEMPLATE):
        left_out = _LEFT_OUT(parent, [*folders, *names])
        folders[:] = [name for name in folders if name not in left_out]
        for name in set(names) - left_out:
            path = Path(parent, name)
            blob = Blob.from_string(path.read_bytes())
            made.object_store.add_object(blob)
            yield os.fsencode(path.relative_to(TEMPLATE)), blob.id, _ORDINARY_FILE


def _head(folder: Path) -> ObjectID | None:
    try:
        with Repo(folder) as found:
            return found.head()
    except (NotGitRepository, KeyError):
        return None


def _let_builds_read(folder: Path) -> None:
    """Builds run as an organization's own user, whatever umask the platform was started with."""
    for parent, _, names in os.walk(folder):
        Path(parent).chmod(0o755)
        for name in names:
            Path(parent, name).chmod(0o644)
