"""What members keep in the playground, and the calls of models that experiments wait for."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned, WorkspaceOwnedUnchecked
from apps.organizations.models import User
from apps.playground.querysets import (
    DraftQuerySet,
    ModelCallQuerySet,
    PlaygroundShareQuerySet,
    SavedSettingsQuerySet,
)


class Draft(WorkspaceOwned):
    """The unsaved columns of a person in a workspace."""

    user = models.ForeignKey(User, models.CASCADE, related_name="+", db_index=False)
    state = models.JSONField()
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(DraftQuerySet)
    unscoped = DraftQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "user"], name="playground_draft_once")
        ]
        indexes = [models.Index(fields=["user"], name="playground_draft_user")]

    def __str__(self) -> str:
        return str(self.pk)


class PlaygroundShare(WorkspaceOwned):
    """Columns as they were when a member made a link for the others of the workspace."""

    title = models.TextField(blank=True)
    state = models.JSONField()
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    objects = TenantManager(PlaygroundShareQuerySet)
    unscoped = PlaygroundShareQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "-created_at"], name="playground_share_newest")
        ]

    def __str__(self) -> str:
        return self.title


class SavedSettings(WorkspaceOwned):
    """A named configuration of a model, as the public API has it."""

    name = models.TextField(blank=True)
    description = models.TextField(blank=True)
    settings = models.JSONField()
    """The manifest of a model."""
    options = models.JSONField(default=dict)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(SavedSettingsQuerySet)
    unscoped = SavedSettingsQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "-created_at"], name="playground_settings_newest")
        ]

    def __str__(self) -> str:
        return self.name


class CallStatus(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    """A worker holds the lease, which ends at `due_at`."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ModelCall(WorkspaceOwnedUnchecked):
    """A call of a model for one row of an experiment. `id` is the id of its run.

    Created with the start of the row, so that a crash loses no call. Every write of a worker is
    conditional on `attempt`: the result of a worker that lost its lease is discarded.
    """

    created_at = models.DateTimeField(default=timezone.now)
    job_id = models.UUIDField()
    """The experiment job, whose target has the setting."""
    step_id = models.UUIDField()
    """The root run of the row."""
    dotted_order = models.TextField()
    """Of the root run."""
    variables = models.JSONField()
    status = models.CharField(max_length=10, choices=CallStatus, default=CallStatus.PENDING)
    attempt = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)
    outputs = models.JSONField(null=True)
    error = models.TextField(blank=True)
    cost = models.FloatField(null=True)
    """In dollars; null if the tokens or their prices are not known."""

    objects = TenantManager(ModelCallQuerySet)
    unscoped = ModelCallQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "job_id"], name="playground_call_of_job"),
            models.Index(
                fields=["due_at"],
                condition=Q(status__in=["pending", "running"]),
                name="playground_call_due",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)
