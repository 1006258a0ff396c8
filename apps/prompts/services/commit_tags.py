"""Tags of commits: names that move, such as `production`."""

from __future__ import annotations

import re
from uuid import UUID

from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.prompts import errors
from apps.prompts.models import Commit, CommitTag, Repository, TagMove, WebhookEvent
from apps.prompts.querysets import CommitTagQuerySet, TagMoveQuerySet
from apps.prompts.services import webhooks
from apps.prompts.services.lookup import LATEST, commits_of
from apps.prompts.services.repositories import lock_repository

MAX_TAGS = 1000
MAX_MOVES = 10_000
"""The number of moves that a repository keeps: the newest, of all its tags."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def tags_of(repository: Repository) -> CommitTagQuerySet:
    """The repository's tags with their commits, by name."""
    rows = CommitTag.objects.for_workspace(repository.workspace_id).filter(repository=repository)
    return rows.select_related("commit").defer("commit__manifest").order_by("name")


def find_tag(repository: Repository, name: str) -> CommitTag:
    tag = tags_of(repository).filter(name=name).first()
    if tag is None:
        raise errors.TagNotFound
    return tag


def moves_of(repository: Repository, name: str) -> TagMoveQuerySet:
    """The moves of the tag with their commits, newest first; also of a deleted tag.

    Raises `TagNotFound` for a name that was never a tag.
    """
    rows = TagMove.objects.for_workspace(repository.workspace_id)
    rows = rows.filter(repository=repository, tag_name=name)
    if not rows.exists():
        find_tag(repository, name)
    rows = rows.select_related("from_commit", "to_commit")
    return rows.defer("from_commit__manifest", "to_commit__manifest").newest_first()


@transaction.atomic
def set_tag(
    *, repository: Repository, name: str, commit_id: UUID, author_id: UUID | None = None
) -> CommitTag:
    """Let the tag point to the commit; an existing tag moves. Safe to repeat.

    Raises `CommitNotFound` for a commit that is not in the repository, or `BadTagName`.
    """
    if _NAME.fullmatch(name) is None or name.lower() == LATEST:
        raise errors.BadTagName
    row = lock_repository(repository)
    commit = commits_of(row).without_manifest().filter(pk=commit_id).first()
    if commit is None:
        raise errors.CommitNotFound
    tags = tags_of(row)
    tag = tags.filter(name=name).first()
    if tag is None:
        if tags.count() >= MAX_TAGS:
            raise errors.BadTagName(f"A repository has at most {MAX_TAGS} tags.")
        tag = CommitTag(workspace_id=row.workspace_id, repository=row, name=name, commit=commit)
        tag.save(force_insert=True)
        _record(row, name, author_id, after=commit)
        webhooks.enqueue(WebhookEvent.TAG_CREATE, commit, tag_name=name, author_id=author_id)
    elif tag.commit_id != commit.pk:
        previous, tag.commit = tag.commit, commit
        tag.save(update_fields=["commit", "updated_at"])
        _record(row, name, author_id, before=previous, after=commit)
        webhooks.enqueue(WebhookEvent.TAG_UPDATE, commit, tag_name=name, author_id=author_id)
    return tag


@transaction.atomic
def delete_tag(*, repository: Repository, name: str, author_id: UUID | None = None) -> None:
    """Remove the name; its commit stays. Raises `TagNotFound`."""
    row = lock_repository(repository)
    tag = find_tag(row, name)
    tag.delete()
    _record(row, name, author_id, before=tag.commit)


def _record(
    repository: Repository,
    name: str,
    author_id: UUID | None,
    *,
    before: Commit | None = None,
    after: Commit | None = None,
) -> None:
    """Add the move to the history, which the lock of the repository orders, and audit it."""
    move = TagMove(
        workspace_id=repository.workspace_id,
        repository=repository,
        tag_name=name,
        from_commit=before,
        to_commit=after,
        moved_by_id=author_id,
    )
    move.save(force_insert=True)
    moves = TagMove.objects.for_workspace(repository.workspace_id).filter(repository=repository)
    oldest = moves.newest_first().values_list("pk", flat=True)[MAX_MOVES : MAX_MOVES + 100]
    moves.filter(pk__in=list(oldest)).delete()
    record(
        Action.PROMPT_TAG_DELETED if after is None else Action.PROMPT_TAG_SET,
        Target("prompt_tag", repository.pk, f"{repository.handle}:{name}"),
        before=None if before is None else {"tag": name, "commit": before.commit_hash},
        after=None if after is None else {"tag": name, "commit": after.commit_hash},
        workspace_id=repository.workspace_id,
    )
