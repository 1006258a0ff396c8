"""Daily usage of workspaces, and usage limits."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from django.db import models
from django.db.models import Q

from apps.core.ids import uuid7
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.organizations.models import Organization, Workspace


class UsageDayQuerySet(models.QuerySet["UsageDay"]):
    def between(self, first: date, last: date) -> UsageDayQuerySet:
        """The days from `first` to `last`, both included."""
        return self.filter(day__gte=first, day__lte=last)


class UsageLimitQuerySet(models.QuerySet["UsageLimit"]):
    def applying_to(self, workspace_id: UUID) -> UsageLimitQuerySet:
        """Limits that apply to the workspace: its own, and its organization's."""
        organization = Workspace.objects.filter(pk=workspace_id).values("organization_id")
        return self.filter(
            Q(workspace_id=workspace_id) | Q(workspace=None, organization_id__in=organization)
        )

    def of_organization(self, organization_id: UUID) -> UsageLimitQuerySet:
        """Limits of the organization itself."""
        return self.filter(organization_id=organization_id, workspace=None)

    def of_workspace(self, workspace_id: UUID) -> UsageLimitQuerySet:
        return self.filter(workspace_id=workspace_id)


MEASURES = ("runs", "traces", "longlived_traces", "bytes", "agent_runs", "agent_seconds")


class UsageDay(WorkspaceOwned):
    """A workspace's usage on a day (UTC). Values are overwritten and never decrease."""

    day = models.DateField()
    runs = models.BigIntegerField(default=0, db_default=0)
    traces = models.BigIntegerField(default=0, db_default=0)
    longlived_traces = models.BigIntegerField(default=0, db_default=0)
    bytes = models.BigIntegerField(default=0, db_default=0)
    """Decompressed bytes of ingest requests."""
    agent_runs = models.BigIntegerField(default=0, db_default=0)
    agent_seconds = models.BigIntegerField(default=0, db_default=0)

    objects = TenantManager(UsageDayQuerySet)
    unscoped = UsageDayQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [models.UniqueConstraint(fields=["workspace", "day"], name="usage_day_once")]

    def __str__(self) -> str:
        return f"{self.day}: {self.runs} runs"


class UsageCounter(models.Model):
    """Counts of one process for a workspace in an hour; each process has its own rows."""

    workspace_id = models.UUIDField()
    hour = models.DateTimeField()
    process = models.UUIDField()
    bytes = models.BigIntegerField(default=0)
    agent_runs = models.BigIntegerField(default=0)
    agent_seconds = models.FloatField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace_id", "hour", "process"], name="usage_counter_unique"
            )
        ]
        indexes = [models.Index(fields=["hour"], name="usage_counter_by_hour")]

    def __str__(self) -> str:
        return f"{self.bytes} bytes in {self.hour:%Y-%m-%d %H}:00"


class StorageKind(models.TextChoices):
    """Stored rows of a workspace that have a limit in bytes."""

    DATASETS = "datasets", "examples with attachments"
    FEEDBACK = "feedback", "feedback"
    THREADS = "threads", "threads with runs and checkpoints"
    STORE = "store", "store items"


class StoredBytesQuerySet(models.QuerySet["StoredBytes"]):
    pass


class StoredBytes(WorkspaceOwned):
    """The measured size of one kind of a workspace's rows; without a row it is 0."""

    kind = models.CharField(max_length=20, choices=StorageKind)
    size = models.BigIntegerField()
    measured_at = models.DateTimeField()

    objects = TenantManager(StoredBytesQuerySet)
    unscoped = StoredBytesQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "kind"], name="stored_bytes_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.size} bytes"


class LimitType(models.TextChoices):
    """A limited measure per calendar hour or month (UTC)."""

    MONTHLY_TRACES = "monthly_traces"
    MONTHLY_LONGLIVED_TRACES = "monthly_longlived_traces"
    MONTHLY_RUNS = "monthly_runs"
    MONTHLY_BYTES = "monthly_bytes"
    HOURLY_TRACES = "hourly_traces"
    HOURLY_RUNS = "hourly_runs"
    HOURLY_BYTES = "hourly_bytes"

    @property
    def period(self) -> str:
        """`month` or `hour`."""
        return "month" if self.startswith("monthly_") else "hour"

    @property
    def measure(self) -> str:
        return self.partition("_")[2]


class UsageLimit(models.Model):
    """A limit of one workspace, or of an organization over all its workspaces."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+")
    workspace = models.ForeignKey(Workspace, models.CASCADE, null=True, related_name="+")
    limit_type = models.CharField(max_length=30, choices=LimitType)
    limit_value = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = UsageLimitQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "workspace", "limit_type"],
                nulls_distinct=False,
                name="usage_limit_once",
            ),
            models.CheckConstraint(
                condition=Q(limit_value__gte=0), name="usage_limit_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.limit_type}: {self.limit_value}"
