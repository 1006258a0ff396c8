"""Assistants and their versions."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models

from apps.agent_server.querysets import AssistantQuerySet, AssistantVersionQuerySet
from apps.core.ids import uuid7
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.deployments.models import Deployment


class Assistant(WorkspaceOwned):
    """A graph with configuration; the row holds the active version's fields."""

    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="assistants")
    assistant_id = models.UUIDField(default=uuid7)
    graph_id = models.CharField(max_length=255)
    name = models.CharField(max_length=255, default="Untitled")
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null on the wire)
    config = models.JSONField(default=dict)
    context = models.JSONField(default=dict)
    metadata = models.JSONField(default=dict)
    version = models.PositiveIntegerField(default=1)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(AssistantQuerySet)
    unscoped = AssistantQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "deployment", "assistant_id"], name="assistant_id_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["workspace", "deployment", "-created_at"], name="assistant_newest"
            ),
            GinIndex(OpClass("metadata", "jsonb_path_ops"), name="assistant_metadata"),
        ]

    def __str__(self) -> str:
        return self.name


class AssistantVersion(WorkspaceOwned):
    """The fields of an assistant at one version."""

    FIELDS = ("graph_id", "name", "description", "config", "context", "metadata")
    """The fields that a version stores, and that returning to it restores."""

    assistant = models.ForeignKey(Assistant, models.CASCADE, related_name="versions")
    version = models.PositiveIntegerField()
    graph_id = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001
    config = models.JSONField(default=dict)
    context = models.JSONField(default=dict)
    metadata = models.JSONField(default=dict)

    objects = TenantManager(AssistantVersionQuerySet)
    unscoped = AssistantVersionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "assistant", "version"], name="assistant_version_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    @classmethod
    def from_assistant(cls, assistant: Assistant) -> AssistantVersion:
        """The assistant's current fields as a version."""
        fields = {name: getattr(assistant, name) for name in cls.FIELDS}
        return cls(
            workspace_id=assistant.workspace_id,
            assistant=assistant,
            version=assistant.version,
            **fields,
        )
