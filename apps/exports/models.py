"""Bulk exports of runs: where to, of what, and how far each day of them has come."""

from __future__ import annotations

from typing import Any

from django.db import models

from apps.core.json import dumps, loads
from apps.core.secrets import decrypt, encrypt
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.exports.querysets import BulkExportQuerySet, DestinationQuerySet, ExportPartQuerySet
from apps.tracing.models import Project


class Status(models.TextChoices):
    """The values are the wire's."""

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


class Kind(models.TextChoices):
    S3 = "s3"
    PLATFORM = "platform"
    """The installation's own object storage; files are fetched by signed addresses."""


class Destination(WorkspaceOwned):
    """Where exports go."""

    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.S3)
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
        """Keep the credentials so that only this platform can read them."""
        self.secret = encrypt(dumps(credentials).decode()) if credentials else None

    def credentials(self) -> dict[str, str]:
        found: dict[str, Any] = {} if self.secret is None else loads(decrypt(self.secret))
        return found


class BulkExport(WorkspaceOwned):
    """The runs of a project in a span of time, or with an interval of every coming span."""

    destination = models.ForeignKey(Destination, models.CASCADE, related_name="exports")
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    source = models.ForeignKey(
        "self", models.CASCADE, null=True, related_name="spawned", db_index=False
    )
    """The schedule that made this one."""
    start_time = models.DateTimeField()
    end_time = models.DateTimeField(null=True)
    """Not included; null for a schedule, which has no end."""
    interval_hours = models.PositiveSmallIntegerField(null=True)
    next_window_at = models.DateTimeField(null=True)
    """Where the next span of a schedule begins."""
    filter = models.TextField(default="", blank=True)
    fields = models.JSONField(null=True)
    """The columns, by name; null for all."""
    compression = models.CharField(
        max_length=10, choices=Compression, default=Compression.ZSTANDARD
    )
    format_version = models.CharField(max_length=10, default="v1")
    status = models.CharField(max_length=10, choices=Status, default=Status.CREATED)
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
    """One day of an export. `run` on the wire."""

    export = models.ForeignKey(BulkExport, models.CASCADE, related_name="parts")
    start_time = models.DateTimeField()
    end_time = models.DateTimeField()
    status = models.CharField(max_length=10, choices=Status, default=Status.CREATED)
    attempts = models.PositiveSmallIntegerField(default=0)
    busy_until = models.DateTimeField(null=True)
    """A worker has it until then, or it waits until then to be tried again."""
    rows_written = models.BigIntegerField(default=0)
    files = models.JSONField(default=list, blank=True)
    cursor = models.TextField(default="", blank=True)
    """Behind the last run that is in a file."""
    problems = models.JSONField(default=list, blank=True)
    """What went wrong, latest last."""
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
