"""Retention of traces; see docs/adr/0020-retention.md."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.organizations.models import Organization, Workspace
from apps.tracing.models.projects import TraceTier
from apps.tracing.querysets import RetainedTraceQuerySet, RetentionQuerySet


class Retention(models.Model):
    """Retention settings of a workspace, or the defaults of an organization."""

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+", db_index=False)
    workspace = models.OneToOneField(Workspace, models.CASCADE, null=True, related_name="+")
    # Null inherits: workspace, then organization, then the installation's settings.
    default_trace_tier = models.CharField(max_length=20, choices=TraceTier, null=True)  # noqa: DJ001
    """The tier of new projects."""
    longlived_ttl_seconds = models.BigIntegerField(null=True)
    shortlived_ttl_seconds = models.BigIntegerField(null=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = RetentionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization"],
                condition=models.Q(workspace=None),
                name="retention_of_organization_once",
            )
        ]

    def __str__(self) -> str:
        return f"lives of traces in {self.workspace_id or self.organization_id}"


class RetainedTrace(WorkspaceOwned):
    """A trace that feedback upgraded to the long-lived tier."""

    trace_id = models.UUIDField()

    objects = TenantManager(RetainedTraceQuerySet)
    unscoped = RetainedTraceQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "trace_id"], name="retained_trace_once")
        ]

    def __str__(self) -> str:
        return str(self.trace_id)
