"""Pending deletions: stored as rows, so that they resume after a crash."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.models.projects import Project
from apps.tracing.querysets import PendingFileDeletionQuerySet, TraceDeletionQuerySet


class DeletionStatus(models.TextChoices):
    PENDING = "pending"
    DONE = "done"


class TraceDeletion(WorkspaceOwned):
    """A requested deletion of a project's traces, by id or by metadata."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    trace_ids = ArrayField(models.UUIDField(), default=list)
    """The traces to delete; of a deletion by metadata, the batch in progress."""
    metadata = models.JSONField(null=True)
    """Metadata that any run of a trace must have; a list of values matches any of them."""
    status = models.CharField(max_length=10, choices=DeletionStatus, default=DeletionStatus.PENDING)
    removed_runs = models.BigIntegerField(default=0)
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager(TraceDeletionQuerySet)
    unscoped = TraceDeletionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "created_at"], name="deletion_of_workspace"),
            models.Index(
                fields=["created_at"],
                name="deletion_pending",
                condition=models.Q(status="pending"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.removed_runs} runs of {self.project_id} removed"


class PendingFileDeletion(WorkspaceOwned):
    """A file in object storage whose run was removed, written in the removal's transaction.

    The row stays until the file is deleted, so a crash leaves no orphaned file.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    run_id = models.UUIDField()
    path = models.TextField()

    objects = TenantManager(PendingFileDeletionQuerySet)
    unscoped = PendingFileDeletionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "run_id"], name="pending_file_of_run")]

    def __str__(self) -> str:
        return self.path
