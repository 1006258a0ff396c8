"""Adds commits to repositories."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from apps.core.json import dumps
from apps.prompts import errors, manifest
from apps.prompts.models import Commit, Repository, WebhookEvent
from apps.prompts.services import webhooks
from apps.prompts.services.lookup import LATEST, MIN_PREFIX_LENGTH, find_head
from apps.prompts.services.repositories import lock_repository


class _AnyParent:
    """The author did not say which commit they saw."""


ANY_PARENT: Final = _AnyParent()
Parent = str | None | _AnyParent
"""The hash that the author saw, None for an empty repository, or `ANY_PARENT`."""


def create_prompt_commit(
    *,
    repository: Repository,
    content: Any,
    parent: Parent = ANY_PARENT,
    description: str = "",
    created_by_id: UUID | None = None,
    skipped_webhooks: bool | Collection[UUID] = (),
) -> Commit:
    """Validate the manifest and commit it.

    Raises `WrongRepositoryType`, `BadManifest`, `StaleParent` or `NothingToCommit`.
    """
    if repository.is_directory:
        raise errors.WrongRepositoryType(
            "The repository is a directory of files: commit to `/directories/commits`."
        )
    return add_commit(
        repository=repository,
        content=manifest.validate_manifest(content),
        parent=parent,
        description=description,
        created_by_id=created_by_id,
        skipped_webhooks=skipped_webhooks,
    )


@transaction.atomic
def add_commit(
    *,
    repository: Repository,
    content: dict[str, Any],
    parent: Parent,
    description: str = "",
    created_by_id: UUID | None = None,
    skipped_webhooks: bool | Collection[UUID] = (),
) -> Commit:
    """Add a commit of valid content to the head. The repository stays locked until the end.

    Raises `StaleParent` if the head is not the parent, `NothingToCommit` for equal content and
    `PromptStorageFull` beyond the limit of the workspace.
    """
    row = lock_repository(repository)
    head = find_head(row)
    if not isinstance(parent, _AnyParent):
        check_parent(head, parent)
    manifest_hash = manifest.content_hash(content)
    if head is not None and head.manifest_hash == manifest_hash:
        raise errors.NothingToCommit
    size = len(dumps(content))
    _require_storage(row.workspace_id, size)
    parent_hash = head.commit_hash if head is not None else ""
    commit = Commit(
        workspace_id=row.workspace_id,
        repository=row,
        number=row.num_commits + 1,
        commit_hash=manifest.commit_hash(parent_hash, manifest_hash),
        parent_id=row.head_id,
        parent_hash=parent_hash,
        manifest=content,
        manifest_hash=manifest_hash,
        description=description,
        created_by_id=created_by_id,
    )
    commit.save(force_insert=True)
    row.head, row.num_commits, row.updated_at = commit, commit.number, timezone.now()
    row.stored_bytes += size
    row.save(update_fields=["head", "num_commits", "stored_bytes", "updated_at"])
    webhooks.enqueue(WebhookEvent.COMMIT, commit, author_id=created_by_id, skipped=skipped_webhooks)
    return commit


def _require_storage(workspace_id: UUID, size: int) -> None:
    rows = Repository.objects.for_workspace(workspace_id)
    used = rows.aggregate(used=Sum("stored_bytes"))["used"] or 0
    if used + size > settings.MAX_PROMPT_STORAGE_BYTES:
        limit = settings.MAX_PROMPT_STORAGE_BYTES // 1_048_576
        raise errors.PromptStorageFull(
            f"The commits of a workspace may have at most {limit} MB: delete a prompt first."
        )


def check_parent(head: Commit | None, parent: str | None) -> None:
    """Raise `StaleParent` unless the parent names the head by its hash or a prefix of it."""
    if parent == LATEST:
        return
    if parent is None:
        is_current = head is None
    else:
        is_prefix = re.fullmatch(rf"[0-9a-f]{{{MIN_PREFIX_LENGTH},}}", parent) is not None
        is_current = head is not None and is_prefix and head.commit_hash.startswith(parent)
    if not is_current:
        latest = [{"latest_commit": head.commit_hash}] if head is not None else []
        raise errors.StaleParent(None, latest)
