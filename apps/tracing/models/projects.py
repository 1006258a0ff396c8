"""Projects: containers of traces."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.querysets import ProjectQuerySet

DEFAULT_PROJECT = "default"


class TraceTier(models.TextChoices):
    """Retention tiers of traces; the values are those of the API."""

    LONG = "longlived"
    SHORT = "shortlived"


class Project(WorkspaceOwned):
    """A container of traces (`session` in the API); an experiment if it has a reference dataset."""

    name = models.CharField(max_length=1000)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null and "" differ on the wire)
    extra = models.JSONField(default=dict, blank=True)
    """Data attached by the client; its `metadata` is the project's metadata."""
    start_time = models.DateTimeField(default=timezone.now)
    end_time = models.DateTimeField(null=True, blank=True)
    default_dataset_id = models.UUIDField(null=True, blank=True)
    reference_dataset_id = models.UUIDField(null=True, blank=True)
    trace_tier = models.CharField(max_length=20, choices=TraceTier, default=TraceTier.LONG)
    short_since = models.DateTimeField(null=True, blank=True, editable=False)
    """Traces received since then are short-lived; null while new traces are long-lived."""
    long_days = models.PositiveIntegerField(null=True, blank=True)
    """Retention of long-lived traces; null for the workspace's setting."""
    agent_id = models.CharField(max_length=63, null=True, blank=True)  # noqa: DJ001  (set for few projects)
    agent_environment = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001
    """With `agent_id`, identifies the project to clients in place of a name."""
    plan = models.JSONField(null=True, blank=True, editable=False)
    """Expected `num_examples`, `num_repetitions` and `evaluator_keys` of an experiment."""
    kicked_off_by = models.CharField(max_length=1000, null=True, blank=True)  # noqa: DJ001
    """The origin of the experiment, as reported by the client."""
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    """Set on deletion; the row is removed after its last run."""

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
