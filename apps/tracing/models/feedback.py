"""What is said about runs and projects."""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import Rows, WorkspaceOwned
from apps.tracing.models.projects import Project
from apps.tracing.querysets import FeedbackQuerySet


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
