"""Prompt repositories: versioned prompts, and directories of agents and skills."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.core.verbatim_json import VerbatimJSONField
from apps.prompts.querysets import (
    CommitQuerySet,
    CommitTagQuerySet,
    LikeQuerySet,
    PromptWebhookQuerySet,
    RepositoryQuerySet,
    TagMoveQuerySet,
)
from apps.webhooks.models import WebhookEndpoint

HASH_LENGTH = 64


class RepositoryType(models.TextChoices):
    """What the commits of a repository contain; the values are on the wire."""

    PROMPT = "prompt"
    AGENT = "agent"
    SKILL = "skill"


DIRECTORY_TYPES = (RepositoryType.AGENT, RepositoryType.SKILL)


class Repository(WorkspaceOwned):
    """A prompt, or the directory of an agent or skill, with all its commits; `repo` on the wire."""

    handle = models.CharField(max_length=100)
    type = models.CharField(max_length=10, choices=RepositoryType, default=RepositoryType.PROMPT)
    description = models.CharField(max_length=1000, blank=True)
    readme = models.TextField(blank=True)
    tags = ArrayField(models.CharField(max_length=100), default=list, blank=True)
    """Labels of the repository; `CommitTag` names commits."""
    is_public = models.BooleanField(default=False)
    """Whether callers of other workspaces may read it."""
    is_archived = models.BooleanField(default=False)
    head = models.ForeignKey("Commit", models.SET_NULL, null=True, related_name="+")
    """The latest commit."""
    num_commits = models.PositiveIntegerField(default=0)
    stored_bytes = models.BigIntegerField(default=0, db_default=0)
    """The JSON of all commits, of which a workspace has a limit."""
    num_likes = models.PositiveIntegerField(default=0)
    num_downloads = models.BigIntegerField(default=0)
    num_views = models.BigIntegerField(default=0)
    created_by_id = models.UUIDField(null=True)
    """The user, or the creator of the key; null for a key without creator."""
    updated_at = models.DateTimeField(default=timezone.now)
    """The time of the last commit or change of its fields."""

    objects = TenantManager(RepositoryQuerySet)
    unscoped = RepositoryQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        verbose_name_plural = "repositories"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "handle"], name="repository_once")
        ]
        indexes = [
            models.Index(
                fields=["workspace", "type", "-updated_at", "id"], name="repository_newest"
            ),
            models.Index(
                fields=["type", "-updated_at", "id"],
                condition=Q(is_public=True),
                name="repository_public",
            ),
        ]

    def __str__(self) -> str:
        return self.handle

    @property
    def is_directory(self) -> bool:
        return self.type in DIRECTORY_TYPES

    @property
    def full_name(self) -> str:
        return f"{self.workspace.handle or '-'}/{self.handle}"


class Commit(WorkspaceOwned):
    """An immutable version of a repository, named by the hash of its content and its parent."""

    repository = models.ForeignKey(
        Repository, models.CASCADE, related_name="commits", db_index=False
    )
    number = models.PositiveIntegerField()
    """Position in the repository, from 1."""
    commit_hash = models.CharField(max_length=HASH_LENGTH)
    parent_id = models.UUIDField(null=True)
    """The previous commit. No foreign key: commits are only deleted all together."""
    parent_hash = models.CharField(max_length=HASH_LENGTH, blank=True)
    manifest = VerbatimJSONField()
    """The LangChain object, or the files of a directory by path."""
    manifest_hash = models.CharField(max_length=HASH_LENGTH)
    description = models.CharField(max_length=1000, blank=True)
    created_by_id = models.UUIDField(null=True)
    num_downloads = models.BigIntegerField(default=0)
    num_views = models.BigIntegerField(default=0)

    objects = TenantManager(CommitQuerySet)
    unscoped = CommitQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "repository", "number"], name="commit_number_once"
            ),
            models.UniqueConstraint(fields=["repository", "commit_hash"], name="commit_hash_once"),
        ]
        indexes = [
            models.Index(
                fields=["repository", "commit_hash"],
                name="commit_hash_prefix",
                opclasses=["uuid_ops", "varchar_pattern_ops"],
            )
        ]

    def __str__(self) -> str:
        return self.commit_hash[:8]


class CommitTag(WorkspaceOwned):
    """A name that points to one commit and can be moved, such as `production`."""

    repository = models.ForeignKey(Repository, models.CASCADE, related_name="commit_tags")
    commit = models.ForeignKey(Commit, models.CASCADE, related_name="commit_tags")
    name = models.CharField(max_length=100)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(CommitTagQuerySet)
    unscoped = CommitTagQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "repository", "name"], name="commit_tag_once"
            )
        ]

    def __str__(self) -> str:
        return self.name


class TagMove(WorkspaceOwned):
    """One change of a tag: it was created, moved to another commit, or deleted."""

    repository = models.ForeignKey(Repository, models.CASCADE, related_name="tag_moves")
    tag_name = models.CharField(max_length=100)
    from_commit = models.ForeignKey(Commit, models.CASCADE, null=True, related_name="+")
    """Null for a new tag."""
    to_commit = models.ForeignKey(Commit, models.CASCADE, null=True, related_name="+")
    """Null for a deleted tag."""
    moved_by_id = models.UUIDField(null=True)
    """The user, or the creator of the key; null for a key without creator."""

    objects = TenantManager(TagMoveQuerySet)
    unscoped = TagMoveQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(
                fields=["workspace", "repository", "tag_name", "-created_at", "-id"],
                name="tag_move_of_tag",
            ),
            models.Index(
                fields=["workspace", "repository", "-created_at", "-id"], name="tag_move_newest"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tag_name} of {self.repository_id}"


class Like(WorkspaceOwned):
    """A like of a repository; the workspace is that of the caller, not of the repository."""

    repository = models.ForeignKey(Repository, models.CASCADE, related_name="likes", db_index=False)
    liked_by_id = models.UUIDField()
    """The user, or the workspace of a key without user."""

    objects = TenantManager(LikeQuerySet)
    unscoped = LikeQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "repository", "liked_by_id"], name="like_once"
            )
        ]
        indexes = [models.Index(fields=["repository"], name="like_of_repository")]

    def __str__(self) -> str:
        return f"{self.liked_by_id} likes {self.repository_id}"


class WebhookEvent(models.TextChoices):
    """Events of a repository that fire webhooks; the values are on the wire."""

    COMMIT = "commit"
    TAG_CREATE = "tag:create"
    TAG_UPDATE = "tag:update"


class PromptWebhook(WebhookEndpoint):
    """An address that is told about commits and tags of the workspace's repositories."""

    include_prompts = ArrayField(models.UUIDField(), default=list)
    """Ids of repositories; empty for all."""
    exclude_prompts = ArrayField(models.UUIDField(), default=list)
    triggers = ArrayField(models.CharField(max_length=20, choices=WebhookEvent), default=list)

    objects = TenantManager(PromptWebhookQuerySet)
    unscoped = PromptWebhookQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "created_at", "id"], name="prompt_webhooks")]
