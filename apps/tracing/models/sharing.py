"""Public links."""

from __future__ import annotations

from uuid import uuid4

from django.db import models
from django.db.models import Q

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.models.projects import Project
from apps.tracing.querysets import ShareQuerySet


class Share(WorkspaceOwned):
    """A public link to one trace or to all traces of one thread."""

    token = models.UUIDField(unique=True, default=uuid4)
    """The link's secret; a client may choose it."""
    project = models.ForeignKey(Project, models.CASCADE, related_name="shares", db_index=False)
    trace_id = models.UUIDField(null=True)
    run_id = models.UUIDField(null=True)
    """The run that the link's page shows first."""
    thread_key = models.TextField(null=True)  # noqa: DJ001  (null: a trace)

    objects = TenantManager(ShareQuerySet)
    unscoped = ShareQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.CheckConstraint(
                condition=Q(trace_id=None, thread_key__isnull=False)
                | Q(trace_id__isnull=False, run_id__isnull=False, thread_key=None),
                name="share_of_one",
            ),
            models.UniqueConstraint(
                fields=["workspace", "project", "trace_id"],
                condition=Q(trace_id__isnull=False),
                name="share_of_trace_once",
            ),
            models.UniqueConstraint(
                fields=["workspace", "project", "thread_key"],
                condition=Q(thread_key__isnull=False),
                name="share_of_thread_once",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "created_at", "id"], name="share_newest"),
            models.Index(fields=["workspace", "trace_id"], name="share_of_trace"),
            models.Index(fields=["project"], name="share_of_project"),
        ]

    def __str__(self) -> str:
        return str(self.trace_id or self.thread_key)
