"""Bulk exports of runs: destinations, exports and their parts."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from apps.core.json import dumps, loads
from apps.core.secrets import decrypt, encrypt
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.tracing.models import Project


class DestinationQuerySet(models.QuerySet["Destination"]):
    pass


class BulkExportQuerySet(models.QuerySet["BulkExport"]):
    def unfinished(self) -> BulkExportQuerySet:
        return self.filter(finished_at=None)

    def scheduled(self) -> BulkExportQuerySet:
        return self.exclude(next_window_at=None)


class ExportPartQuerySet(models.QuerySet["ExportPart"]):
    def unfinished(self) -> ExportPartQuerySet:
        return self.filter(finished_at=None)

    def claimable(self, now: datetime) -> ExportPartQuerySet:
        """Unfinished parts without a current lease or retry delay."""
        return self.unfinished().filter(Q(locked_until=None) | Q(locked_until__lt=now))


class ExportStatus(models.TextChoices):
    """Status of an export or a part; the values are part of the API."""

    CREATED = "Created"
    RUNNING = "Running"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"


class Compression(models.TextChoices):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    ZSTANDARD = "zstandard"


class DestinationKind(models.TextChoices):
    S3 = "s3"
    PLATFORM = "platform"
    """The platform's object storage; files are downloaded by signed URLs."""


class Destination(WorkspaceOwned):
    """A bucket or platform folder that exports are written to."""

    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=10, choices=DestinationKind, default=DestinationKind.S3)
    config = models.JSONField(default=dict, blank=True)
    """`bucket_name`, `prefix`, `region`, `endpoint_url`, `include_bucket_in_prefix`."""
    secret = models.BinaryField(null=True)
    """The credentials, encrypted."""
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(DestinationQuerySet)
    unscoped = DestinationQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="destination_newest")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def prefix(self) -> str:
        return str(self.config.get("prefix") or "").strip("/")

    def set_credentials(self, credentials: dict[str, str] | None) -> None:
        """Set the encrypted credentials."""
        self.secret = encrypt(dumps(credentials).decode()) if credentials else None

    def credentials(self) -> dict[str, str]:
        credentials: dict[str, str] = {} if self.secret is None else loads(decrypt(self.secret))
        return credentials


class BulkExport(WorkspaceOwned):
    """An export of a project's runs in a time range, or a schedule of such exports."""

    destination = models.ForeignKey(Destination, models.CASCADE, related_name="exports")
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    source = models.ForeignKey(
        "self", models.CASCADE, null=True, related_name="scheduled_exports", db_index=False
    )
    """The schedule that created this export."""
    start_time = models.DateTimeField()
    end_time = models.DateTimeField(null=True)
    """Exclusive; null for a schedule."""
    interval_hours = models.PositiveSmallIntegerField(null=True)
    next_window_at = models.DateTimeField(null=True)
    """Start of the next window of a schedule."""
    filter = models.TextField(default="", blank=True)
    fields = models.JSONField(null=True)
    """Names of the exported columns; null for all."""
    compression = models.CharField(
        max_length=10, choices=Compression, default=Compression.ZSTANDARD
    )
    format_version = models.CharField(max_length=10, default="v1")
    status = models.CharField(max_length=10, choices=ExportStatus, default=ExportStatus.CREATED)
    updated_at = models.DateTimeField(auto_now=True)
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager(BulkExportQuerySet)
    unscoped = BulkExportQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["source", "start_time"],
                condition=models.Q(source__isnull=False),
                name="export_window_once",
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="export_newest"),
            models.Index(
                fields=["next_window_at"],
                name="export_due",
                condition=models.Q(next_window_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.status} export of {self.project_id}"

    @property
    def is_schedule(self) -> bool:
        return self.interval_hours is not None


class ExportPart(WorkspaceOwned):
    """One day of an export; `run` in the API."""

    export = models.ForeignKey(BulkExport, models.CASCADE, related_name="parts")
    start_time = models.DateTimeField()
    end_time = models.DateTimeField()
    status = models.CharField(max_length=10, choices=ExportStatus, default=ExportStatus.CREATED)
    attempts = models.PositiveSmallIntegerField(default=0)
    locked_until = models.DateTimeField(null=True)
    """End of a worker's lease, or of the delay before a retry."""
    rows_written = models.BigIntegerField(default=0)
    files = models.JSONField(default=list, blank=True)
    cursor = models.TextField(default="", blank=True)
    """Position after the last written run."""
    problems = models.JSONField(default=list, blank=True)
    """The latest errors, oldest first."""
    updated_at = models.DateTimeField(auto_now=True)
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager(ExportPartQuerySet)
    unscoped = ExportPartQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "export", "start_time"], name="export_part_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["created_at"],
                name="export_part_unfinished",
                condition=models.Q(finished_at=None),
            )
        ]

    def __str__(self) -> str:
        return f"{self.start_time:%Y-%m-%d}: {self.rows_written} runs"
