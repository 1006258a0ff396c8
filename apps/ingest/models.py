"""Deferred run operations and counts of rejected items."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.ingest.querysets import DeferredOperationQuerySet, RejectionCountQuerySet


class DeferredOperation(WorkspaceOwned):
    """A run operation that cannot be placed before another run is stored.

    An update without a project or tree position awaits its own run; a create without a dotted
    order awaits its parent.
    """

    awaited_run_id = models.UUIDField()
    run_id = models.UUIDField()
    is_update = models.BooleanField()
    body = models.BinaryField()
    """The operation as JSON."""

    objects = TenantManager(DeferredOperationQuerySet)
    unscoped = DeferredOperationQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "awaited_run_id"], name="deferred_operation_awaited"),
            models.Index(fields=["created_at"], name="deferred_operation_age"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} awaits {self.awaited_run_id}"


class RejectionCount(WorkspaceOwned):
    """How many runs, attachments or feedback of one hour were rejected for one reason.

    `project_id` is null for items that were rejected before their project was resolved. Reasons
    that begin with `unread_usage:` count stored runs with a token attribute that was not read.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    project_id = models.UUIDField(null=True)
    hour = models.DateTimeField()
    reason = models.CharField(max_length=100)
    """A stable code, unlike the error text."""
    count = models.BigIntegerField(default=0)

    objects = TenantManager(RejectionCountQuerySet)
    unscoped = RejectionCountQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "hour", "project_id", "reason"],
                name="rejection_count_once",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return f"{self.count} times {self.reason} in {self.hour:%Y-%m-%d %H}:00"
