"""Named filters of a project's runs."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.models.projects import Project
from apps.tracing.querysets import SavedViewQuerySet


class ViewType(models.TextChoices):
    """The kind of rows that a view lists; the values are those of the API."""

    RUNS = "runs"
    THREADS = "threads"


class SavedView(WorkspaceOwned):
    """A named filter, visible to all members of the workspace."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="saved_views")
    display_name = models.CharField(max_length=200)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null and "" differ on the wire)
    filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    trace_filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    tree_filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    type = models.CharField(max_length=20, choices=ViewType, default=ViewType.RUNS)
    shown = models.JSONField(default=dict, blank=True)
    """Further state of the page (tab, order, time range, columns) as query parameters."""
    is_default = models.BooleanField(default=False)
    """Whether the project's page opens with this view."""
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(SavedViewQuerySet)
    unscoped = SavedViewQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "project", "created_at"], name="view_of_project")
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["project"],
                condition=models.Q(is_default=True),
                name="view_default_once",
            )
        ]

    def __str__(self) -> str:
        return self.display_name
