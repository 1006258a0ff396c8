"""What an Agent Server keeps: assistants, threads, agent runs, and the state graphs save.

Clients choose some ids themselves, and a graph's own assistant has the same id in every deployment,
so each client-visible id is unique within its deployment only; rows have a private key besides.
"""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.agent_server.querysets import (
    AgentRunQuerySet,
    AssistantQuerySet,
    AssistantVersionQuerySet,
    ThreadQuerySet,
)
from apps.agent_server.statuses import MultitaskStrategy, RunStatus, ThreadStatus
from apps.core.ids import uuid7
from apps.core.tenancy import Rows, WorkspaceOwned
from apps.deployments.models import Deployment, Revision


class Assistant(WorkspaceOwned):
    """A graph with configuration; the row holds the active version's fields."""

    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="assistants")
    assistant_id = models.UUIDField(default=uuid7)
    graph_id = models.CharField(max_length=255)
    name = models.CharField(max_length=255, default="Untitled")
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  (null on the wire)
    config = models.JSONField(default=dict)
    context = models.JSONField(default=dict)
    metadata = models.JSONField(default=dict)
    version = models.PositiveIntegerField(default=1)
    updated_at = models.DateTimeField(auto_now=True)

    objects = Rows(AssistantQuerySet)
    unscoped = AssistantQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "deployment", "assistant_id"], name="assistant_id_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["workspace", "deployment", "-created_at"], name="assistant_newest"
            ),
            GinIndex(OpClass("metadata", "jsonb_path_ops"), name="assistant_metadata"),
        ]

    def __str__(self) -> str:
        return self.name


class AssistantVersion(WorkspaceOwned):
    """What an assistant was at one version."""

    assistant = models.ForeignKey(Assistant, models.CASCADE, related_name="versions")
    version = models.PositiveIntegerField()
    graph_id = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001
    config = models.JSONField(default=dict)
    context = models.JSONField(default=dict)
    metadata = models.JSONField(default=dict)

    objects = Rows(AssistantVersionQuerySet)
    unscoped = AssistantVersionQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "assistant", "version"], name="assistant_version_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


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


class AgentRun(WorkspaceOwned):
    """One execution of an assistant on a thread. `id` is the wire's `run_id`.

    The claim that executes it holds a lease and the token `attempt`: every write it makes carries
    the token and is refused once it is stale.
    """

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, related_name="agent_runs", db_index=False
    )
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="runs", db_index=False)
    assistant_id = models.UUIDField()
    graph_id = models.CharField(max_length=255)
    revision = models.ForeignKey(Revision, models.SET_NULL, null=True, related_name="+")
    sequence = models.BigIntegerField()
    """The order in which the server received the runs of this thread."""
    status = models.CharField(max_length=12, choices=RunStatus, default=RunStatus.PENDING)
    metadata = models.JSONField(default=dict)
    kwargs = models.JSONField(default=dict)
    """What was asked for: input, command, config, context, stream modes and so on."""
    multitask_strategy = models.CharField(
        max_length=12, choices=MultitaskStrategy, default=MultitaskStrategy.ENQUEUE
    )
    on_completion = models.CharField(max_length=10, default="keep")
    """Of a stateless run's temporary thread: `delete` or `keep`."""
    available_at = models.DateTimeField(db_default=Now())
    """Not before this moment is the run claimed."""
    error = models.JSONField(null=True, blank=True)
    cancel_action = models.CharField(max_length=10, blank=True)
    """`interrupt` or `rollback` once somebody asked the running attempt to stop."""

    attempt = models.PositiveIntegerField(default=0)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)

    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = Rows(AgentRunQuerySet)
    unscoped = AgentRunQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["thread", "sequence"], name="agent_run_order"),
            # One writer per thread, whoever claims.
            models.UniqueConstraint(
                fields=["thread"], condition=Q(status="running"), name="agent_run_alone"
            ),
        ]
        indexes = [
            models.Index(
                fields=["workspace", "deployment", "-created_at"], name="agent_run_newest"
            ),
            models.Index(
                fields=["thread", "sequence"],
                condition=Q(status__in=["pending", "running"]),
                name="agent_run_open",
            ),
            models.Index(
                fields=["available_at"], condition=Q(status="pending"), name="agent_run_waiting"
            ),
            models.Index(
                fields=["lease_expires_at"], condition=Q(status="running"), name="agent_run_leased"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class Checkpoint(models.Model):
    """A thread's state as a graph saved it: opaque bytes to us. Reached through its thread only."""

    pk = models.CompositePrimaryKey("thread", "namespace", "checkpoint_id")
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="checkpoints", db_index=False)
    namespace = models.TextField()
    checkpoint_id = models.UUIDField()
    parent_id = models.UUIDField(null=True)
    run_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=20)
    """The serialiser's name for the bytes."""
    blob = models.BinaryField()
    """The checkpoint without the channel values, which are shared between checkpoints."""
    blob_versions = models.JSONField(default=dict)
    """Of each channel whose value is a `CheckpointBlob`, the version."""
    metadata = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.checkpoint_id)


class CheckpointBlob(models.Model):
    """The value of one channel at one version, shared by the checkpoints that refer to it."""

    pk = models.CompositePrimaryKey("thread", "namespace", "channel", "version")
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="+", db_index=False)
    namespace = models.TextField()
    channel = models.TextField()
    version = models.TextField()
    kind = models.CharField(max_length=20)
    blob = models.BinaryField()

    def __str__(self) -> str:
        return f"{self.channel}@{self.version}"


class CheckpointWrite(models.Model):
    """What one task wrote on top of a checkpoint, before the next checkpoint took it in."""

    pk = models.CompositePrimaryKey("thread", "namespace", "checkpoint_id", "task_id", "index")
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="+", db_index=False)
    namespace = models.TextField()
    checkpoint_id = models.UUIDField()
    task_id = models.TextField()
    task_path = models.TextField(default="")
    index = models.IntegerField()
    channel = models.TextField()
    kind = models.CharField(max_length=20)
    blob = models.BinaryField()

    def __str__(self) -> str:
        return f"{self.task_id}:{self.channel}"
