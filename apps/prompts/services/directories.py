"""Directories of agents and skills: files and links to other repositories, by path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.organizations.models import Workspace
from apps.prompts import errors
from apps.prompts.manifest import check_bounds
from apps.prompts.models import DIRECTORY_TYPES, Commit, Repository
from apps.prompts.services.commits import ANY_PARENT, Parent, add_commit, check_parent
from apps.prompts.services.lookup import (
    OWN,
    commits_of,
    find_head,
    find_repository,
    is_own_name,
    read_manifest,
    readable_repositories,
)
from apps.prompts.services.repositories import lock_repository

MAX_FILES = 2000
MAX_CHANGES = 2 * MAX_FILES
"""Of one commit, which may remove all files and add as many."""
MAX_PATH_LENGTH = 500
_INVALID_PATH = re.compile(r"[\x00-\x1f\x7f\\]")
LATEST_SELECTOR = {"type": "LATEST"}


@transaction.atomic
def create_directory_commit(
    *,
    repository: Repository,
    files: Mapping[str, dict[str, Any] | None],
    parent: Parent = ANY_PARENT,
    created_by_id: UUID | None = None,
    skipped_webhooks: bool = False,
) -> Commit:
    """Apply the changes to the files of the latest commit; None removes a path.

    Raises `WrongRepositoryType`, `BadDirectory`, `StaleParent` or `NothingToCommit`.
    """
    if not repository.is_directory:
        raise errors.WrongRepositoryType(
            "The repository is a prompt: commit its manifest to `/commits`."
        )
    if len(files) > MAX_CHANGES:
        raise errors.BadDirectory(f"A commit changes at most {MAX_CHANGES} files.")
    row = lock_repository(repository)
    head = find_head(row)
    # Before the paths are compared: a stale author sees the conflict, not its consequence.
    if isinstance(parent, str | None):
        check_parent(head, parent)
    content: dict[str, Any] = read_manifest(head) if head is not None else {}
    for path, entry in files.items():
        if entry is not None:
            content[_validate_path(path)] = _validate_entry(row, path, entry)
        elif path in content:
            del content[path]
        else:
            raise errors.BadDirectory(f"`{path:.100}` cannot be deleted: there is no such file.")
    _check_tree(content)
    return add_commit(
        repository=row,
        content={path: content[path] for path in sorted(content)},
        parent=ANY_PARENT,
        created_by_id=created_by_id,
        skipped_webhooks=skipped_webhooks,
    )


def _validate_path(path: str) -> str:
    parts = path.split("/")
    if (
        len(path) > MAX_PATH_LENGTH
        or _INVALID_PATH.search(path)
        or not path.isprintable()
        or any(part in {"", ".", ".."} for part in parts)
    ):
        raise errors.BadDirectory(f"`{path:.100}` is not a relative path without `..`.")
    return path


def _check_tree(content: Mapping[str, Any]) -> None:
    if len(content) > MAX_FILES:
        raise errors.BadDirectory(f"A directory has at most {MAX_FILES} files.")
    for path in content:
        parts = path.split("/")
        parents = ("/".join(parts[:length]) for length in range(1, len(parts)))
        if any(parent in content for parent in parents):
            raise errors.BadDirectory(f"`{path:.100}` is inside of a file.")
    check_bounds(content, errors.BadDirectory)


def _validate_entry(repository: Repository, path: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry as it is stored: the content of a file, or a link with its selector."""
    kind = entry["type"]
    if kind == "file":
        return {"type": "file", "content": entry["content"]}
    target = _find_linked(repository, entry.get("owner") or OWN, entry["repo_handle"], kind)
    if target is None:
        raise errors.BadDirectory(f"`{path:.100}` links to an unknown {kind}.")
    if target.pk == repository.pk:
        raise errors.BadDirectory(f"`{path:.100}` links to its own repository.")
    selector = entry.get("selector")
    if entry.get("commit_id"):
        if selector is not None:
            raise errors.BadDirectory(
                f"`{path:.100}`: `commit_id` and `selector` exclude each other."
            )
        selector = {"type": "COMMIT", "commit_id": str(entry["commit_id"])}
    selector = selector or LATEST_SELECTOR
    commits = commits_of(target)
    pinned = selector.get("commit_id")
    if pinned is not None and not commits.filter(pk=pinned).exists():
        raise errors.BadDirectory(f"`{path:.100}` links to an unknown commit.")
    given_hash = entry.get("commit_hash")
    if given_hash and not commits.filter(commit_hash=given_hash).exists():
        raise errors.BadDirectory(f"`{path:.100}` links to an unknown commit.")
    return {
        "type": kind,
        "owner": OWN if target.workspace_id == repository.workspace_id else entry["owner"],
        "repo_handle": target.handle,
        "selector": selector,
    }


def _find_linked(repository: Repository, owner: str, handle: str, kind: str) -> Repository | None:
    workspace: Workspace = repository.workspace
    own = OWN if is_own_name(workspace, owner) else owner
    try:
        target = find_repository(repository.workspace_id, own, handle)
    except errors.RepositoryNotFound:
        return None
    return target if target.type == kind else None


def require_directory(repository: Repository, kind: str | None = None) -> None:
    """Raise `RepositoryNotFound` unless the repository is a directory, of that type if given."""
    if not repository.is_directory or kind not in {None, repository.type}:
        raise errors.RepositoryNotFound


def read_files(
    repository: Repository, commit: Commit, reader_id: UUID
) -> dict[str, dict[str, Any]]:
    """Return the entries of the commit by path; links have the hash that they select now.

    A link whose repository is gone, or that the workspace of the reader may not read, is left out:
    a public directory does not tell of private ones.
    """
    entries: dict[str, Any] = read_manifest(commit)
    links = {
        (entry["owner"], entry["repo_handle"])
        for entry in entries.values()
        if entry["type"] != "file"
    }
    targets = _load_targets(repository, links, reader_id)
    pinned_ids = {
        entry["selector"]["commit_id"]
        for entry in entries.values()
        if entry["type"] != "file" and "commit_id" in entry["selector"]
    }
    pinned = (
        {
            str(row.pk): row
            for row in Commit.objects.across_workspaces(
                reason="links may lead to public repositories, which `_load_targets` has checked"
            )
            .filter(pk__in=pinned_ids, repository__in=[row.pk for row in targets.values()])
            .without_manifest()
        }
        if pinned_ids
        else {}
    )
    files = {}
    for path, entry in entries.items():
        if entry["type"] == "file":
            files[path] = entry
            continue
        target = targets.get((entry["owner"], entry["repo_handle"]))
        if target is None or target.type != entry["type"]:
            continue
        selected = pinned.get(entry["selector"].get("commit_id"), target.head)
        if selected is not None:
            files[path] = entry | {
                "owner": target.workspace.handle or OWN,
                "commit_id": selected.pk,
                "commit_hash": selected.commit_hash,
            }
    return files


def _load_targets(
    repository: Repository, links: set[tuple[str, str]], reader_id: UUID
) -> dict[tuple[str, str], Repository]:
    """The linked repositories by owner and handle, with one query."""
    if not links:
        return {}
    rows = readable_repositories(reader_id).filter(
        type__in=DIRECTORY_TYPES, handle__in={handle for _, handle in links}
    )
    rows = rows.select_related("workspace", "head").defer("head__manifest")
    targets = {}
    for row in rows:
        is_own = row.workspace_id == repository.workspace_id
        targets[OWN if is_own else row.workspace.handle or "", row.handle] = row
    return targets
