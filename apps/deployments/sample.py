"""The sample agent: a bare Git repository built from the platform's template folder."""

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

from apps.deployments.git import SAMPLE_REPOSITORY

TEMPLATE = Path(__file__).resolve().parent / "sample_agent"
NAME = "sample-agent"

# Fixed, so that the same content always gets the same commit id.
_AUTHOR = b"Slipway <sample@slipway.invalid>"
_COMMIT_TIME = 1_767_225_600  # 2026-01-01T00:00:00Z
_REGULAR_FILE_MODE = 0o100644
_IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".venv", ".env")


def ensure_repository() -> tuple[str, str]:
    """Create or update the sample's bare repository; return its address and commit id."""
    folder: Path = settings.DATA_DIR / SAMPLE_REPOSITORY
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new_repository = Path(temporary, "repository")
        commit = _create_repository(new_repository)
        if _head(folder) != commit:
            shutil.rmtree(folder, ignore_errors=True)
            new_repository.rename(folder)
            _make_readable(folder)
    return folder.as_uri(), commit.decode()


def _create_repository(folder: Path) -> ObjectID:
    with Repo.init_bare(folder, mkdir=True, default_branch=b"main") as repository:
        commit = Commit()
        commit.tree = commit_tree(repository.object_store, _blobs(repository))
        commit.author = commit.committer = _AUTHOR
        commit.author_time = commit.commit_time = _COMMIT_TIME
        commit.author_timezone = commit.commit_timezone = 0
        commit.message = b"The sample agent\n"
        repository.object_store.add_object(commit)
        repository.refs[HEADREF] = commit.id
        return commit.id


def _blobs(repository: Repo) -> Iterator[tuple[bytes, ObjectID, int]]:
    for parent, folders, names in os.walk(TEMPLATE):
        ignored = _IGNORED(parent, [*folders, *names])
        folders[:] = [name for name in folders if name not in ignored]
        for name in set(names) - ignored:
            path = Path(parent, name)
            blob = Blob.from_string(path.read_bytes())
            repository.object_store.add_object(blob)
            yield os.fsencode(path.relative_to(TEMPLATE)), blob.id, _REGULAR_FILE_MODE


def _head(folder: Path) -> ObjectID | None:
    try:
        with Repo(folder) as repository:
            return repository.head()
    except (NotGitRepository, KeyError):
        return None


def _make_readable(folder: Path) -> None:
    """Make the repository readable for builds, which run as the organization's own user."""
    for parent, _, names in os.walk(folder):
        Path(parent).chmod(0o755)
        for name in names:
            Path(parent, name).chmod(0o644)
