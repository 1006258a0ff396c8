"""Projects and what is kept beside their runs; the runs themselves live behind `tracing.store`."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from apps.core.tenancy import Rows, WorkspaceOwned
from apps.tracing.querysets import (
    FeedbackQuerySet,
    HeldOperationQuerySet,
    IngestCountQuerySet,
    ProjectQuerySet,
)

DEFAULT_PROJECT = "default"


class TraceTier(models.TextChoices):
    """How long traces are kept; the values are the wire's."""

    LONG = "longlived"
    SHORT = "shortlived"


class Project(WorkspaceOwned):
    """A container of traces; with a reference dataset an experiment. `session` on the wire."""

    name = models.CharField(max_length=1000)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null and "" differ on the wire)
    extra = models.JSONField(default=dict, blank=True)
    """What the client attached; `metadata` in it is the project's metadata."""
    start_time = models.DateTimeField(default=timezone.now)
    end_time = models.DateTimeField(null=True, blank=True)
    default_dataset_id = models.UUIDField(null=True, blank=True)
    reference_dataset_id = models.UUIDField(null=True, blank=True)
    trace_tier = models.CharField(max_length=20, choices=TraceTier, default=TraceTier.LONG)
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    """Set at once; the row goes when the last of its runs has gone."""

    objects = Rows(ProjectQuerySet)
    unscoped = ProjectQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "name"],
                condition=models.Q(deleted_at=None),
                name="project_name_once",
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "-start_time", "-id"], name="project_newest"),
        ]

    def __str__(self) -> str:
        return self.name


class Feedback(WorkspaceOwned):
    """A keyed score, value or comment on a run or on a project. It may come before its run."""

    project = models.ForeignKey(
        Project, models.CASCADE, null=True, related_name="feedback", db_index=False
    )
    run_id = models.UUIDField(null=True)
    trace_id = models.UUIDField(null=True)
    key = models.CharField(max_length=1000)
    score = models.FloatField(null=True)
    value = models.JSONField(null=True)
    comment = models.TextField(null=True)  # noqa: DJ001  (null and "" differ on the wire)
    correction = models.JSONField(null=True)
    source = models.JSONField(default=dict)
    """`type` and `metadata` of who gave it."""
    extra = models.JSONField(null=True)
    feedback_group_id = models.UUIDField(null=True)
    comparative_experiment_id = models.UUIDField(null=True)
    is_error = models.BooleanField(default=False)
    modified_at = models.DateTimeField(auto_now=True)

    objects = Rows(FeedbackQuerySet)
    unscoped = FeedbackQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        verbose_name_plural = "feedback"
        indexes = [
            models.Index(fields=["workspace", "run_id"], name="feedback_of_run"),
            models.Index(fields=["project", "key"], name="feedback_of_project"),
        ]

    def __str__(self) -> str:
        return self.key


class HeldOperation(WorkspaceOwned):
    """An operation on a run that cannot be placed before another run is known.

    A bare update waits for its own run, a run without a dotted order for its parent.
    """

    waits_for = models.UUIDField()
    run_id = models.UUIDField()
    body = models.BinaryField()
    """The operation as the JSON of the wire."""

    objects = Rows(HeldOperationQuerySet)
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
    last_start_time = models.DateTimeField(null=True)

    objects = Rows(IngestCountQuerySet)
    unscoped = IngestCountQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "project_id", "hour"], name="ingest_count_of_project")
        ]

    def __str__(self) -> str:
        return f"{self.runs} runs in {self.hour:%Y-%m-%d %H}:00"
