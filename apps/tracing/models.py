"""Projects, their saved views, public links, retention and deletions of traces.

Runs are in `apps.trace_store`.
"""

from __future__ import annotations

from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.organizations.models import Organization, Workspace
from apps.tracing.querysets import (
    ProjectQuerySet,
    RetentionQuerySet,
    SavedViewQuerySet,
    ShareQuerySet,
    TraceDeletionQuerySet,
)

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
    """Traces received from this time on are short-lived; null if new traces are long-lived."""
    long_days = models.PositiveIntegerField(null=True, blank=True)
    """Retention of long-lived traces in days; null inherits the setting of the workspace."""
    agent_id = models.CharField(max_length=63, null=True, blank=True)  # noqa: DJ001  (set for few projects)
    agent_environment = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001
    """With `agent_id`, identifies the project to clients in place of a name."""
    plan = models.JSONField(null=True, blank=True, editable=False)
    """Expected `num_examples`, `num_repetitions` and `evaluator_keys` of an experiment."""
    kicked_off_by = models.CharField(max_length=1000, null=True, blank=True)  # noqa: DJ001
    """The kind of client that started the experiment, as reported by it."""
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    """The time of deletion. The row is removed after its last run."""

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


class ViewType(models.TextChoices):
    """The kind of rows that a view lists; the values are those of the API."""

    RUNS = "runs"
    THREADS = "threads"


class SavedView(WorkspaceOwned):
    """A named filter, visible to all members of the workspace."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="saved_views")
    display_name = models.CharField(max_length=200)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null and "" differ on the wire)
    filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    trace_filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    tree_filter_string = models.TextField(null=True, blank=True)  # noqa: DJ001
    type = models.CharField(max_length=20, choices=ViewType, default=ViewType.RUNS)
    shown = models.JSONField(default=dict, blank=True)
    """Other state of the page as query parameters: tab, order, time range, columns."""
    is_default = models.BooleanField(default=False)
    """Whether the project's page opens with this view."""
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(SavedViewQuerySet)
    unscoped = SavedViewQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "project", "created_at"], name="view_of_project")
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["project"],
                condition=models.Q(is_default=True),
                name="view_default_once",
            )
        ]

    def __str__(self) -> str:
        return self.display_name


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


class Retention(models.Model):
    """Retention settings of a workspace, or the defaults of an organization."""

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+", db_index=False)
    workspace = models.OneToOneField(Workspace, models.CASCADE, null=True, related_name="+")
    # Null inherits: workspace, then organization, then the installation's settings.
    default_trace_tier = models.CharField(max_length=20, choices=TraceTier, null=True)  # noqa: DJ001
    """The tier of new projects."""
    longlived_ttl_seconds = models.BigIntegerField(null=True)
    shortlived_ttl_seconds = models.BigIntegerField(null=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = RetentionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization"],
                condition=models.Q(workspace=None),
                name="retention_of_organization_once",
            )
        ]

    def __str__(self) -> str:
        return f"retention of {self.workspace_id or self.organization_id}"


class DeletionStatus(models.TextChoices):
    PENDING = "pending"
    DONE = "done"


class TraceDeletion(WorkspaceOwned):
    """A requested deletion of a project's traces, by id or by metadata."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    trace_ids = ArrayField(models.UUIDField(), default=list)
    """The traces to delete; in a deletion by metadata, the current batch."""
    metadata = models.JSONField(null=True)
    """Metadata that a run of the trace must have; a list matches any of its values."""
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
