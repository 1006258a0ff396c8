"""What ingest keeps beside the runs."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.querysets import (
    HeldOperationQuerySet,
    IngestCountQuerySet,
    IngestRefusalQuerySet,
)


class HeldOperation(WorkspaceOwned):
    """An operation on a run that cannot be placed before another run is known.

    A bare update waits for its own run, a run without a dotted order for its parent.
    """

    waits_for = models.UUIDField()
    run_id = models.UUIDField()
    body = models.BinaryField()
    """The operation as the JSON of the wire."""

    objects = TenantManager(HeldOperationQuerySet)
    unscoped = HeldOperationQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "waits_for"], name="held_waits_for")]

    def __str__(self) -> str:
        return f"{self.run_id} waits for {self.waits_for}"


class IngestCount(WorkspaceOwned):
    """What one request, or after compaction one hour, brought to one project.

    Written in the transaction of the runs it counts, by appending: no two requests wait for each
    other, and the sums are exact.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    project_id = models.UUIDField()
    hour = models.DateTimeField()
    runs = models.BigIntegerField(default=0)
    """Runs that were not there before."""
    traces = models.BigIntegerField(default=0)
    """Of those, the roots."""
    merged = models.BigIntegerField(default=0)
    """Runs that were there and took an update."""
    removed_runs = models.BigIntegerField(default=0, db_default=0)
    """Runs that were deleted or had lived long enough; of those, the roots:"""
    removed_traces = models.BigIntegerField(default=0, db_default=0)
    last_start_time = models.DateTimeField(null=True)

    objects = TenantManager(IngestCountQuerySet)
    unscoped = IngestCountQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(
                fields=["workspace", "project_id", "hour"], name="ingest_count_of_project"
            ),
            # Usage is summed by day over all workspaces.
            models.Index(fields=["hour"], name="ingest_count_by_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.runs} runs in {self.hour:%Y-%m-%d %H}:00"


class IngestRefusal(WorkspaceOwned):
    """How many runs, files or feedbacks of an hour were refused for one reason.

    Without a project when it was refused before anybody knew which one it was for.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    project_id = models.UUIDField(null=True)
    hour = models.DateTimeField()
    reason = models.CharField(max_length=100)
    """A code that stays the same, while words beside it may change."""
    count = models.BigIntegerField(default=0)

    objects = TenantManager(IngestRefusalQuerySet)
    unscoped = IngestRefusalQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "hour", "project_id", "reason"],
                name="ingest_refusal_once",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return f"{self.count} times {self.reason} in {self.hour:%Y-%m-%d %H}:00"
