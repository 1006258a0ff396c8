"""Threads."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.agent_server.querysets import ThreadQuerySet
from apps.agent_server.statuses import ThreadStatus
from apps.core.ids import uuid7
from apps.core.tenancy import Rows, WorkspaceOwned
from apps.deployments.models import Deployment, Revision


class Thread(WorkspaceOwned):
    """State that is kept between runs."""

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
    """Made for a stateless run, and gone with it; not to be seen from outside."""
    runs_received = models.BigIntegerField(db_default=0)
    """Counts up with each run created on it: the newest run's `sequence`."""
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    state_updated_at = models.DateTimeField(db_default=Now())

    objects = Rows(ThreadQuerySet)
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
        ]

    def __str__(self) -> str:
        return str(self.thread_id)
