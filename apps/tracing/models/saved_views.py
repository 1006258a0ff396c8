"""Filters of a project's runs that people gave a name."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.models.projects import Project
from apps.tracing.querysets import SavedViewQuerySet


class ViewType(models.TextChoices):
    """What the view lists; the values are the wire's."""

    RUNS = "runs"
    THREADS = "threads"


class SavedView(WorkspaceOwned):
    """A filter with a name, seen by everybody in the workspace."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="saved_views")
    display_name = models.CharField(max_length=200)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null and "" differ on the wire)
    filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    trace_filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    tree_filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    type = models.CharField(max_length=20, choices=ViewType, default=ViewType.RUNS)
    shown = models.JSONField(default=dict, blank=True)
    """What a page shows besides: its tab, order, time, columns, as its address says them."""
    is_default = models.BooleanField(default=False)
    """Whether the project opens with it."""
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
