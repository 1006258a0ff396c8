"""Projects: containers of traces."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.querysets import ProjectQuerySet

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
    short_since = models.DateTimeField(null=True, blank=True, editable=False)
    """Traces received from then on are short-lived; null while new ones are long-lived."""
    long_days = models.PositiveIntegerField(null=True, blank=True)
    """How long its long-lived traces live; null while the workspace's word holds."""
    agent_id = models.CharField(max_length=63, null=True, blank=True)  # noqa: DJ001  (of few)
    agent_environment = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001
    """With `agent_id`, the address under which clients reach the project instead of a name."""
    plan = models.JSONField(null=True, blank=True, editable=False)
    """Of an experiment: `num_examples`, `num_repetitions`, `evaluator_keys` that are expected."""
    kicked_off_by = models.CharField(max_length=1000, null=True, blank=True)  # noqa: DJ001
    """Who or what began it, as its client says."""
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    """Set at once; the row goes when the last of its runs has gone."""

    objects = TenantManager(ProjectQuerySet)
    unscoped = ProjectQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "name"],
                condition=models.Q(deleted_at=None),
                name="project_name_once",
            ),
            models.UniqueConstraint(
                fields=["workspace", "agent_id", "agent_environment"],
                condition=models.Q(deleted_at=None, agent_id__isnull=False),
                name="project_address_once",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-start_time", "-id"], name="project_newest"),
            models.Index(
                fields=["workspace", "reference_dataset_id", "start_time"],
                name="project_of_dataset",
                condition=models.Q(reference_dataset_id__isnull=False),
            ),
            models.Index(
                fields=["workspace"],
                name="project_deleted",
                condition=models.Q(deleted_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name
