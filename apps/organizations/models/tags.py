"""Tags: keys with values, assigned to resources of a workspace."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.organizations.querysets import TaggingQuerySet, TagKeyQuerySet, TagValueQuerySet


class ResourceType(models.TextChoices):
    """Resource types that can be tagged."""

    PROJECT = "project"
    DATASET = "dataset"
    QUEUE = "queue"
    PROMPT = "prompt"
    DEPLOYMENT = "deployment"
    EXPERIMENT = "experiment"
    DASHBOARD = "dashboard"


class TagKey(WorkspaceOwned):
    """A tag key, such as `Environment`."""

    key = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(TagKeyQuerySet)
    unscoped = TagKeyQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [models.UniqueConstraint(fields=["workspace", "key"], name="tag_key_once")]

    def __str__(self) -> str:
        return self.key


class TagValue(WorkspaceOwned):
    """A value of a tag key, such as `production`."""

    tag_key = models.ForeignKey(TagKey, models.CASCADE, related_name="values")
    value = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(TagValueQuerySet)
    unscoped = TagValueQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "tag_key", "value"], name="tag_value_once")
        ]

    def __str__(self) -> str:
        return self.value


class Tagging(WorkspaceOwned):
    """A value assigned to a resource of any app, so its id is not a foreign key."""

    tag_value = models.ForeignKey(TagValue, models.CASCADE, related_name="taggings")
    resource_type = models.CharField(max_length=20, choices=ResourceType)
    resource_id = models.UUIDField()

    objects = TenantManager(TaggingQuerySet)
    unscoped = TaggingQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "resource_type", "resource_id", "tag_value"],
                name="tagging_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tag_value} on {self.resource_type} {self.resource_id}"
