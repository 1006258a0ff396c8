"""What is on its way out: work is a row, so that nothing stops half-way for good."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.models.projects import Project
from apps.tracing.querysets import DoomedFileQuerySet, TraceDeletionQuerySet


class DeletionStatus(models.TextChoices):
    PENDING = "pending"
    DONE = "done"


class TraceDeletion(WorkspaceOwned):
    """Traces of a project that somebody asked to delete, by their ids or by their metadata."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    trace_ids = ArrayField(models.UUIDField(), default=list)
    """Which; of a deletion by metadata, those that are found and on their way out."""
    metadata = models.JSONField(null=True)
    """Pairs that one run of a trace has to have; a list of values means any of them."""
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


class DoomedFile(WorkspaceOwned):
    """A file in object storage whose run is gone: written with the removal, kept till it is gone.

    So a crash between the two leaves no file behind that nobody knows of.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    run_id = models.UUIDField()
    path = models.TextField()

    objects = TenantManager(DoomedFileQuerySet)
    unscoped = DoomedFileQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "run_id"], name="doomed_file_of_run")]

    def __str__(self) -> str:
        return self.path
