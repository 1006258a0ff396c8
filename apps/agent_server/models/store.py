"""The agent store."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.agent_server.querysets import StoreItemQuerySet
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.core.vectors import VectorField
from apps.deployments.models import Deployment


class StoreItem(WorkspaceOwned):
    """A value under a key in a namespace of one deployment.

    Namespace and key compare byte by byte, so that all namespaces below a prefix are one range of
    the unique index.
    """

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, related_name="store_items", db_index=False
    )
    namespace = ArrayField(models.TextField(db_collation="C"))
    key = models.TextField(db_collation="C")
    value = models.JSONField()
    created_at = models.DateTimeField(db_default=Now())
    """Kept when the value is replaced."""
    updated_at = models.DateTimeField(db_default=Now())
    ttl_minutes = models.FloatField(null=True, blank=True)
    """Time to live after the last write, or after the last read that refreshes it."""
    expires_at = models.DateTimeField(null=True, blank=True)
    """From then on the item is hidden; the sweeper deletes it later."""

    objects = TenantManager(StoreItemQuerySet)
    unscoped = StoreItemQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "deployment", "namespace", "key"], name="store_item_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["workspace", "deployment", "-updated_at"], name="store_item_newest"
            ),
            GinIndex(OpClass("value", "jsonb_path_ops"), name="store_item_value"),
            models.Index(
                fields=["expires_at"],
                condition=Q(expires_at__isnull=False),
                name="store_item_expiring",
            ),
        ]

    def __str__(self) -> str:
        return f"{'.'.join(self.namespace)}/{self.key}"


class StoreVector(models.Model):
    """The embedding of one text of an item. Accessed through its item only."""

    pk = models.CompositePrimaryKey("item", "position")
    item = models.ForeignKey(StoreItem, models.CASCADE, related_name="vectors", db_index=False)
    position = models.PositiveIntegerField()
    path = models.TextField()
    """The path of the text in the value."""
    dims = models.PositiveIntegerField()
    """Only vectors of equal length are compared, as the agent's model may change."""
    embedding = VectorField()

    def __str__(self) -> str:
        return self.path
