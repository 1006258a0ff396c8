"""Crons."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.agent_server.models.threads import Thread
from apps.agent_server.querysets import CronQuerySet
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.core.verbatim_json import VerbatimJSONField
from apps.deployments.models import Deployment


class Cron(WorkspaceOwned):
    """A schedule that starts runs. `id` is the wire's `cron_id`.

    It fires when `due_at` is in the past: one transaction creates the run and sets the next
    `due_at`.
    """

    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="crons", db_index=False)
    assistant_id = models.UUIDField()
    # Migration 0002 adds the foreign key, which deletes the cron with its thread.
    thread = models.ForeignKey(
        Thread,
        models.DO_NOTHING,
        null=True,
        related_name="crons",
        db_index=False,
        db_constraint=False,
    )
    """None: each firing creates a new thread."""
    schedule = models.CharField(max_length=255)
    timezone = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001  (null is UTC)
    end_time = models.DateTimeField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    payload = VerbatimJSONField(default=dict)
    """The client's request, from which each firing creates a run."""
    metadata = models.JSONField(default=dict)
    on_run_completed = models.CharField(max_length=10, null=True, blank=True)  # noqa: DJ001
    """`delete` or `keep` the new thread of a firing; null for a cron on a thread."""
    user = models.JSONField(null=True, blank=True)
    """The creator, as custom authentication returned it; owner of the runs."""
    next_run_date = models.DateTimeField()
    """The schedule's next time, even if the cron is disabled."""
    due_at = models.DateTimeField(null=True, blank=True)
    """`next_run_date`; null while the cron is disabled and after its end."""
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    objects = TenantManager(CronQuerySet)
    unscoped = CronQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "deployment", "-created_at"], name="cron_newest"),
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="cron_due"),
            models.Index(fields=["thread"], condition=Q(thread__isnull=False), name="cron_thread"),
            models.Index(fields=["workspace", "deployment", "assistant_id"], name="cron_assistant"),
            GinIndex(OpClass("metadata", "jsonb_path_ops"), name="cron_metadata"),
        ]

    def __str__(self) -> str:
        return self.schedule

    @property
    def user_id(self) -> str | None:
        identity = (self.user or {}).get("identity")
        return None if identity is None else str(identity)
