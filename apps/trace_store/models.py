"""Tables that accompany the stored runs: counts, retained traces, files to delete and model prices.

The runs themselves have no model, see docs/adr/0005.
"""

from __future__ import annotations

from django.db import models

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.trace_store.querysets import (
    ModelPriceQuerySet,
    PendingFileDeletionQuerySet,
    RetainedTraceQuerySet,
    RunCountQuerySet,
)


class RunCount(WorkspaceOwned):
    """The number of runs that one request added to or removed from one project.

    Rows are only appended, in the transaction of the runs that they count: the sums are exact and
    requests do not wait for each other. Compaction leaves one row for each project and past hour.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    project_id = models.UUIDField()
    hour = models.DateTimeField()
    runs = models.BigIntegerField(default=0)
    """New runs."""
    traces = models.BigIntegerField(default=0)
    """New runs that are roots."""
    merged = models.BigIntegerField(default=0)
    """Existing runs that were updated."""
    removed_runs = models.BigIntegerField(default=0, db_default=0)
    """Runs that were deleted or expired."""
    removed_traces = models.BigIntegerField(default=0, db_default=0)
    """Removed runs that were roots."""
    last_start_time = models.DateTimeField(null=True)

    objects = TenantManager(RunCountQuerySet)
    unscoped = RunCountQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "project_id", "hour"], name="run_count_of_project"),
            # Usage is summed by day over all workspaces.
            models.Index(fields=["hour"], name="run_count_by_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.runs} runs in {self.hour:%Y-%m-%d %H}:00"


class RetainedTrace(WorkspaceOwned):
    """A trace that feedback upgraded to the long-lived tier."""

    trace_id = models.UUIDField()

    objects = TenantManager(RetainedTraceQuerySet)
    unscoped = RetainedTraceQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "trace_id"], name="retained_trace_once")
        ]

    def __str__(self) -> str:
        return str(self.trace_id)


class PendingFileDeletion(WorkspaceOwned):
    """A file in object storage whose run was removed, written in the removal's transaction.

    The row stays until the file is deleted, so a crash leaves no orphaned file.
    """

    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    run_id = models.UUIDField()
    path = models.TextField()

    objects = TenantManager(PendingFileDeletionQuerySet)
    unscoped = PendingFileDeletionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "run_id"], name="pending_file_of_run")]

    def __str__(self) -> str:
        return self.path


class ModelPrice(WorkspaceOwned):
    """A workspace's entry of the price map; it takes precedence over built-in ones."""

    name = models.CharField(max_length=500)
    match_pattern = models.CharField(max_length=1000)
    """An RE2 pattern, searched in the names under `match_path`."""
    match_path = models.JSONField(default=list)
    provider = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001  (null is any)
    start_time = models.DateTimeField(null=True, blank=True)
    """Applies to runs that started at or after this time; null for all."""
    prompt_cost = models.DecimalField(max_digits=40, decimal_places=24)
    completion_cost = models.DecimalField(max_digits=40, decimal_places=24)
    """US dollars per token."""
    prompt_cost_details = models.JSONField(default=dict, blank=True)
    completion_cost_details = models.JSONField(default=dict, blank=True)
    """Prices by kind of token, decimals as strings."""
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(ModelPriceQuerySet)
    unscoped = ModelPriceQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [models.Index(fields=["workspace", "-id"], name="model_price_newest")]

    def __str__(self) -> str:
        return self.name
