"""Chainable queries on prompt repositories and their commits."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models import Case, IntegerField, Q, Value, When

if TYPE_CHECKING:
    from apps.prompts.models import (  # noqa: F401
        Commit,
        CommitTag,
        Like,
        PromptWebhook,
        Repository,
        TagMove,
    )


class RepositoryQuerySet(models.QuerySet["Repository"]):
    def readable_by(self, workspace_id: UUID) -> RepositoryQuerySet:
        """Repositories of the workspace, and public ones of workspaces that may publish."""
        return self.filter(Q(workspace_id=workspace_id) | _PUBLISHED)

    def published(self) -> RepositoryQuerySet:
        return self.filter(_PUBLISHED)

    def with_tags(self, tags: Collection[str]) -> RepositoryQuerySet:
        """Repositories that have all the tags."""
        return self.filter(tags__contains=list(tags)) if tags else self

    def matching(self, query: str, *, by_prefix: bool) -> RepositoryQuerySet:
        """Repositories in which each word of the query occurs.

        A word matches any part of the handle, and whole words of description, readme and tags;
        with `by_prefix` also the beginnings of their words.
        """
        rows = self
        for word in query.split():
            pattern = rf"\m{re.escape(word)}" + ("" if by_prefix else r"\M")
            rows = rows.filter(
                Q(handle__icontains=word)
                | Q(description__iregex=pattern)
                | Q(readme__iregex=pattern)
                | Q(tags__contains=[word])
            )
        return rows

    def by_relevance(self, query: str) -> RepositoryQuerySet:
        """Order: equal handle, handle that begins with the query, then by likes."""
        text = query.strip()
        rank = Case(
            When(handle__iexact=text, then=Value(0)),
            When(handle__istartswith=text, then=Value(1)),
            When(handle__icontains=text, then=Value(2)),
            default=Value(3),
            output_field=IntegerField(),
        )
        return self.order_by(rank, "-num_likes", "-updated_at", "pk")


_PUBLISHED = Q(
    is_public=True,
    workspace__handle__isnull=False,
    workspace__deleted_at__isnull=True,
    workspace__organization__public_sharing_disabled=False,
)


class CommitQuerySet(models.QuerySet["Commit"]):
    def newest_first(self) -> CommitQuerySet:
        return self.order_by("-number")

    def without_manifest(self) -> CommitQuerySet:
        return self.defer("manifest")


class CommitTagQuerySet(models.QuerySet["CommitTag"]):
    pass


class TagMoveQuerySet(models.QuerySet["TagMove"]):
    def newest_first(self) -> TagMoveQuerySet:
        return self.order_by("-created_at", "-pk")


class LikeQuerySet(models.QuerySet["Like"]):
    pass


class PromptWebhookQuerySet(models.QuerySet["PromptWebhook"]):
    def triggered_by(self, event: str, repository_id: UUID) -> PromptWebhookQuerySet:
        """Webhooks that the event of the repository fires."""
        rows = self.filter(triggers__contains=[event])
        rows = rows.filter(Q(include_prompts=[]) | Q(include_prompts__contains=[repository_id]))
        return rows.exclude(exclude_prompts__contains=[repository_id])
