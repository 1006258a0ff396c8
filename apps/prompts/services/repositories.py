"""Creates, changes and deletes repositories, and likes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.callers import Caller
from apps.organizations.models import Organization, ResourceType, Workspace
from apps.organizations.services import tags as workspace_tags
from apps.prompts import errors
from apps.prompts.models import Like, Repository, RepositoryType

MAX_REPOSITORIES = 10_000
HANDLE_PATTERN = r"\A[a-z][a-z0-9-_]*\Z"
MAX_HANDLE_LENGTH = 100
_AUDITED = ("description", "tags", "is_public", "is_archived")


@transaction.atomic
def create_repository(
    *,
    workspace_id: UUID,
    handle: str,
    type: RepositoryType = RepositoryType.PROMPT,  # noqa: A002  (the field's name)
    is_public: bool = False,
    description: str = "",
    readme: str = "",
    tags: Collection[str] = (),
    tag_value_ids: Collection[UUID] = (),
    created_by_id: UUID | None = None,
) -> Repository:
    """Create an empty repository.

    Raises `RepositoryExists`, `TooManyRepositories`, and for a public one `HandleRequired` or
    `PublishingForbidden`.
    """
    rows = Repository.objects.for_workspace(workspace_id)
    if rows.count() >= MAX_REPOSITORIES:
        raise errors.TooManyRepositories
    workspace = Workspace.objects.select_related("organization").get(pk=workspace_id)
    repository = Repository(
        workspace=workspace,
        handle=handle,
        type=type,
        description=description,
        readme=readme,
        tags=list(tags),
        is_public=is_public,
        created_by_id=created_by_id,
    )
    if is_public:
        _check_publishing(workspace)
    try:
        with transaction.atomic():
            repository.save(force_insert=True)
    except IntegrityError:
        raise errors.RepositoryExists from None
    workspace_tags.add_tags(
        workspace_id=workspace_id,
        value_ids=tag_value_ids,
        resource_type=ResourceType.PROMPT,
        resource_id=repository.pk,
    )
    _record(Action.PROMPT_CREATED, repository, after=_audit_values(repository))
    if is_public:
        _record(Action.PROMPT_PUBLISHED, repository)
    return repository


@transaction.atomic
def update_repository(*, repository: Repository, changes: Mapping[str, Any]) -> Repository:
    """Change description, readme, tags, visibility or archiving.

    Raises `HandleRequired` or `PublishingForbidden` if it becomes public.
    """
    row = lock_repository(repository)
    before = _audit_values(row)
    becomes_public = bool(changes.get("is_public")) and not row.is_public
    if becomes_public:
        _check_publishing(row.workspace)
    for name, value in changes.items():
        setattr(row, name, value)
    if changes:
        row.updated_at = timezone.now()
        row.save(update_fields=[*changes, "updated_at"])
    if (after := _audit_values(row)) != before:
        _record(Action.PROMPT_UPDATED, row, before=before, after=after)
    if becomes_public:
        _record(Action.PROMPT_PUBLISHED, row)
    return row


@transaction.atomic
def delete_repository(*, repository: Repository) -> None:
    """Delete the repository with its commits, tags and likes."""
    row = lock_repository(repository)
    workspace_tags.delete_taggings(
        workspace_id=row.workspace_id, resource_type=ResourceType.PROMPT, resource_id=row.pk
    )
    _record(Action.PROMPT_DELETED, row, before=_audit_values(row))
    row.delete()


def lock_repository(repository: Repository) -> Repository:
    """Lock the row against concurrent commits and changes. Raises `RepositoryNotFound`."""
    rows = Repository.objects.for_workspace(repository.workspace_id)
    locked = rows.select_for_update(no_key=True, of=("self",))
    row = locked.select_related("workspace__organization").filter(pk=repository.pk).first()
    if row is None:
        raise errors.RepositoryNotFound
    return row


def unpublish_organization(organization: Organization) -> None:
    """Make every repository of the organization private."""
    workspaces = Workspace.objects.filter(organization=organization)
    for workspace_id in workspaces.values_list("pk", flat=True):
        rows = Repository.objects.for_workspace(workspace_id)
        for repository in rows.filter(is_public=True).order_by("pk"):
            update_repository(repository=repository, changes={"is_public": False})


@transaction.atomic
def set_like(*, repository: Repository, caller: Caller, is_liked: bool) -> int:
    """Like the repository, or take the like back, and return the number of likes. Idempotent."""
    rows = Like.objects.for_workspace(caller.workspace_id)
    like = Like(
        workspace_id=caller.workspace_id,
        repository=repository,
        liked_by_id=liker_of(caller),
    )
    if is_liked:
        rows.bulk_create([like], ignore_conflicts=True)
    else:
        rows.filter(repository=repository, liked_by_id=like.liked_by_id).delete()
    count = repository.likes.count()
    # Not `updated_at`: a like is no change of the repository.
    Repository.objects.for_workspace(repository.workspace_id).filter(pk=repository.pk).update(
        num_likes=count
    )
    return count


def liker_of(caller: Caller) -> UUID:
    """The user, or the workspace of a key without user."""
    return caller.user_id or caller.workspace_id


def liked_ids(caller: Caller, repositories: Collection[Repository]) -> set[UUID]:
    """The ids of the repositories that the caller likes."""
    likes = Like.objects.for_workspace(caller.workspace_id).filter(
        liked_by_id=liker_of(caller), repository__in=[row.pk for row in repositories]
    )
    return set(likes.values_list("repository_id", flat=True))


def _check_publishing(workspace: Workspace) -> None:
    if workspace.organization.public_sharing_disabled:
        raise errors.PublishingForbidden
    if not workspace.handle:
        raise errors.HandleRequired


def _audit_values(repository: Repository) -> dict[str, Any]:
    return {name: getattr(repository, name) for name in _AUDITED} | {"type": repository.type}


def _record(action: Action, repository: Repository, **values: Any) -> None:
    record(
        action,
        Target("prompt", repository.pk, repository.handle),
        workspace_id=repository.workspace_id,
        **values,
    )
