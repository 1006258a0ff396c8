"""Threads."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Func, Q
from django.db.models.functions import Now

from apps.agent_server.querysets import ThreadQuerySet
from apps.agent_server.statuses import ThreadStatus, TTLStrategy
from apps.core.ids import uuid7
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.deployments.models import Deployment, Revision

# By way of UTC, because PostgreSQL generates columns from immutable functions only.
_TTL_UNTIL = """(CASE
    WHEN ttl_strategy <> 'keep_latest' THEN updated_at AT TIME ZONE 'UTC'
    WHEN pruned_at IS NULL THEN created_at AT TIME ZONE 'UTC'
    WHEN pruned_at AT TIME ZONE 'UTC'
        < updated_at AT TIME ZONE 'UTC' + make_interval(secs => ttl_minutes * 60)
        THEN pruned_at AT TIME ZONE 'UTC'
    END + make_interval(secs => ttl_minutes * 60)) AT TIME ZONE 'UTC'"""


class Thread(WorkspaceOwned):
    """State that persists between runs."""

    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="threads")
    thread_id = models.UUIDField(default=uuid7)
    status = models.CharField(max_length=12, choices=ThreadStatus, default=ThreadStatus.IDLE)
    metadata = models.JSONField(default=dict)
    config = models.JSONField(default=dict)
    values = models.JSONField(null=True, blank=True)
    """The state's values when the last run ended; null before any checkpoint."""
    interrupts = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    state = models.JSONField(null=True, blank=True)
    """The snapshot that `GET state` answers while no run is open; null: ask the graph host."""
    revision = models.ForeignKey(Revision, models.SET_NULL, null=True, related_name="+")
    """The revision that its open runs stay on."""
    temporary = models.BooleanField(default=False)
    """Created for a stateless run and deleted with it; hidden from clients."""
    runs_received = models.BigIntegerField(db_default=0)
    """Number of runs created on it: the newest run's `sequence`."""
    edits = models.BigIntegerField(db_default=0)
    """Number of changes of its state outside of runs.

    Together with `runs_received` it is the version of the state for optimistic edits.
    """
    ttl_minutes = models.FloatField(null=True, blank=True)
    """Time to live; null for no limit."""
    ttl_strategy = models.CharField(
        max_length=12, choices=TTLStrategy, default=TTLStrategy.DELETE, db_default="delete"
    )
    pruned_at = models.DateTimeField(null=True, blank=True)
    """When old checkpoints were last removed because of `keep_latest`."""
    ttl_until = models.GeneratedField(
        expression=Func(template=_TTL_UNTIL, output_field=models.DateTimeField()),
        output_field=models.DateTimeField(),
        db_persist=True,
        null=True,
    )
    """When the time to live next requires a sweep; null for never.

    With `delete`, the thread is deleted that long after its last activity. With `keep_latest`,
    checkpoints of that age are deleted, until the thread was inactive for as long.
    """
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    state_updated_at = models.DateTimeField(db_default=Now())

    objects = TenantManager(ThreadQuerySet)
    unscoped = ThreadQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "deployment", "thread_id"], name="thread_id_once"
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "deployment", "-updated_at"], name="thread_newest"),
            GinIndex(OpClass("metadata", "jsonb_path_ops"), name="thread_metadata"),
            models.Index(
                fields=["updated_at"], condition=Q(temporary=True), name="thread_temporary"
            ),
            models.Index(
                fields=["ttl_until"],
                condition=Q(ttl_until__isnull=False, temporary=False),
                name="thread_ttl",
            ),
        ]

    def __str__(self) -> str:
        return str(self.thread_id)
