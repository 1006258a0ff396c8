"""Counts of runs by project and hour."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.querysets import RunCountQuerySet


class RunCount(WorkspaceOwned):
    """The number of runs that one request added to or removed from one project.

    Rows are only appended, in the transaction of the runs that they count: the sums are exact and
    requests do not wait for each other. Compaction leaves one row for each project and past hour.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    project_id = models.UUIDField()
    hour = models.DateTimeField()
    runs = models.BigIntegerField(default=0)
    """New runs."""
    traces = models.BigIntegerField(default=0)
    """New runs that are roots."""
    merged = models.BigIntegerField(default=0)
    """Existing runs that were updated."""
    removed_runs = models.BigIntegerField(default=0, db_default=0)
    """Runs that were deleted or expired."""
    removed_traces = models.BigIntegerField(default=0, db_default=0)
    """Removed runs that were roots."""
    last_start_time = models.DateTimeField(null=True)

    objects = TenantManager(RunCountQuerySet)
    unscoped = RunCountQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "project_id", "hour"], name="run_count_of_project"),
            # Usage is summed by day over all workspaces.
            models.Index(fields=["hour"], name="run_count_by_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.runs} runs in {self.hour:%Y-%m-%d %H}:00"
