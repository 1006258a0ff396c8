"""Finds repositories and commits as callers name them.

An owner is `-` (the caller's workspace) or the handle of a workspace. A commit is `latest`, a hash,
the first 8 or more characters of one, or a tag.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from apps.organizations.models import Workspace
from apps.prompts import errors
from apps.prompts.models import HASH_LENGTH, Commit, CommitTag, Repository
from apps.prompts.querysets import CommitQuerySet, RepositoryQuerySet

OWN = "-"
LATEST = "latest"
MIN_PREFIX_LENGTH = 8
_HASH_PREFIX = re.compile(rf"[0-9a-f]{{{MIN_PREFIX_LENGTH},{HASH_LENGTH}}}")


def readable_repositories(workspace_id: UUID) -> RepositoryQuerySet:
    """The workspace's repositories and the public ones of other workspaces."""
    rows = Repository.objects.across_workspaces(reason="public repositories are for all callers")
    return rows.readable_by(workspace_id)


def published_repositories() -> RepositoryQuerySet:
    rows = Repository.objects.across_workspaces(reason="public repositories are for all callers")
    return rows.published()


def find_repository(workspace_id: UUID, owner: str, handle: str) -> Repository:
    """Return a repository that the workspace may read. Raises `RepositoryNotFound`."""
    if owner == OWN:
        rows = Repository.objects.for_workspace(workspace_id)
    else:
        rows = readable_repositories(workspace_id).filter(workspace__handle=owner)
    repository = rows.select_related("workspace").filter(handle=handle).first()
    if repository is None:
        raise errors.RepositoryNotFound
    return repository


def find_published_repository(owner: str, handle: str) -> Repository | None:
    """Return a public repository for a caller without a workspace."""
    rows = published_repositories().filter(workspace__handle=owner, handle=handle)
    return rows.select_related("workspace").first()


def find_own_repository(workspace_id: UUID, owner: str, handle: str) -> Repository:
    """Return a repository of the workspace, for a change.

    Raises `RepositoryNotFound`, or `RepositoryOfAnotherWorkspace` for one that it may only read.
    """
    repository = find_repository(workspace_id, owner, handle)
    if repository.workspace_id != workspace_id:
        raise errors.RepositoryOfAnotherWorkspace
    return repository


def is_own_name(workspace: Workspace, owner: str) -> bool:
    return owner in (OWN, workspace.handle)


def commits_of(repository: Repository) -> CommitQuerySet:
    return Commit.objects.for_workspace(repository.workspace_id).filter(repository=repository)


def find_head(repository: Repository) -> Commit | None:
    """Return the latest commit without its manifest; None for an empty repository."""
    if repository.head_id is None:
        return None
    return commits_of(repository).without_manifest().get(pk=repository.head_id)


def find_commit(repository: Repository, name: str) -> Commit:
    """Return the named commit without its manifest; a hash takes precedence over a tag.

    Raises `CommitNotFound`, also for a prefix of several hashes.
    """
    if name in {"", LATEST}:
        commit = find_head(repository)
    else:
        commits = commits_of(repository).without_manifest()
        commit = _find_by_hash(commits, name) or _find_by_tag(repository, commits, name)
    if commit is None:
        raise errors.CommitNotFound
    return commit


def _find_by_hash(commits: CommitQuerySet, name: str) -> Commit | None:
    if _HASH_PREFIX.fullmatch(name) is None:
        return None
    if len(name) == HASH_LENGTH:
        return commits.filter(commit_hash=name).first()
    matches = commits.filter(commit_hash__startswith=name)[:2]
    if len(matches) > 1:
        raise errors.CommitNotFound("Several commits begin with this hash; give more of it.")
    return matches[0] if matches else None


def _find_by_tag(repository: Repository, commits: CommitQuerySet, name: str) -> Commit | None:
    tags = CommitTag.objects.for_workspace(repository.workspace_id)
    tagged = tags.filter(repository=repository, name=name)
    return commits.filter(pk__in=tagged.values("commit_id")).first()


def read_manifest(commit: Commit) -> dict[str, Any]:
    """Return the manifest of a commit that was found without it."""
    rows = Commit.objects.for_workspace(commit.workspace_id).filter(pk=commit.pk)
    manifest: dict[str, Any] = rows.values_list("manifest", flat=True).get()
    return manifest
