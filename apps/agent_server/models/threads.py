"""Threads, their runs, and the checkpoints that graphs save.

Checkpoints are opaque bytes of LangGraph, accessed through their thread only.
"""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Func, Q
from django.db.models.functions import Now

from apps.agent_server.querysets import (
    AgentRunQuerySet,
    ThreadQuerySet,
    UnreportedAttemptQuerySet,
)
from apps.agent_server.statuses import MultitaskStrategy, RunStatus, ThreadStatus, TTLStrategy
from apps.core.ids import uuid7
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.core.verbatim_json import VerbatimJSONField
from apps.deployments.models import Deployment, Revision

# Computed in UTC, because a generated column may only use immutable functions.
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
    values = VerbatimJSONField(null=True, blank=True)
    """The state's values when the last run ended; null before any checkpoint."""
    interrupts = VerbatimJSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True)
    state = VerbatimJSONField(null=True, blank=True)
    """The response of `GET state` while no run is open; null if only the graph host knows it."""
    revision = models.ForeignKey(Revision, models.SET_NULL, null=True, related_name="+")
    """The revision that executes the thread's open runs."""
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
    checkpoints of that age are deleted, until the thread has been inactive for that long.
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
    kwargs = VerbatimJSONField(default=dict)
    """The client's request: input, command, config, context, stream modes and so on."""
    resumable = models.BooleanField(default=False, db_default=False)
    """Whether readers may resume the stream: its events are stored."""
    multitask_strategy = models.CharField(
        max_length=12, choices=MultitaskStrategy, default=MultitaskStrategy.ENQUEUE
    )
    on_completion = models.CharField(max_length=10, default="keep")
    """Whether to `delete` or `keep` the thread of a stateless run."""
    available_at = models.DateTimeField(db_default=Now())
    """The run is not claimed before this time."""
    error = models.JSONField(null=True, blank=True)
    cancel_action = models.CharField(max_length=10, blank=True)
    """`interrupt` or `rollback` once cancellation of the running attempt was requested."""
    superseded_by = models.UUIDField(null=True, blank=True)
    """The newer run that preempted this one."""

    attempt = models.PositiveIntegerField(default=0)
    """Incremented by each claim; the fencing token of its writes."""
    crash_count = models.PositiveSmallIntegerField(default=0, db_default=0)
    """Number of attempts whose process crashed, possibly because of this run."""
    isolation_group_size = models.PositiveIntegerField(default=0, db_default=0)
    """Maximum number of runs on its isolated graph host after a crash; 0 for the shared host."""
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)

    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = TenantManager(AgentRunQuerySet)
    unscoped = AgentRunQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["thread", "sequence"], name="agent_run_order"),
            # At most one running run per thread.
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
                fields=["workspace", "deployment"],
                condition=Q(status="pending"),
                name="agent_run_queued",
            ),
            models.Index(
                fields=["lease_expires_at"], condition=Q(status="running"), name="agent_run_leased"
            ),
            models.Index(
                fields=["ended_at"], condition=Q(ended_at__isnull=False), name="agent_run_ended"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class UnreportedAttempt(WorkspaceOwned):
    """An attempt whose process ended before it reported the end of its trace.

    Deleted after the last check for open runs.
    """

    run_id = models.UUIDField()
    """No foreign key: a stateless run may be deleted first."""
    attempt = models.PositiveIntegerField()
    error = models.TextField(blank=True)
    """The error of the open runs; empty if the agent run ended without one."""
    ended_at = models.DateTimeField()
    check_count = models.PositiveSmallIntegerField(default=0, db_default=0)
    due_at = models.DateTimeField()
    """When the trace is checked for open runs the next time."""

    objects = TenantManager(UnreportedAttemptQuerySet)
    unscoped = UnreportedAttemptQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "run_id", "attempt"], name="unreported_attempt_once"
            )
        ]
        indexes = [models.Index(fields=["due_at"], name="unreported_attempt_due")]

    def __str__(self) -> str:
        return f"{self.run_id} {self.attempt}"


class StreamedEvents(models.Model):
    """A chunk of a run's stream. Accessed through its run only; expires after the run."""

    pk = models.CompositePrimaryKey("run_id", "position")
    run_id = models.UUIDField()
    """No foreign key: an insert must not lock the run, and the sweeper deletes orphans."""
    position = models.BigIntegerField()
    """The position of its last event."""
    batches = models.BinaryField()
    """The batches as sent to Redis, in a msgpack array."""

    def __str__(self) -> str:
        return f"{self.run_id}@{self.position}"


class Checkpoint(models.Model):
    """A thread's state as a graph saved it. Accessed through its thread only."""

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
    """The version of each channel whose value is a `CheckpointBlob`."""
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
    """A write of one task that is not part of a checkpoint yet."""

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
    run_id = models.UUIDField(null=True)
    """The run that wrote it; a run that resumes an interrupt is later than the checkpoint's."""
    replaced = models.JSONField(null=True)
    """The write of an earlier run that this one replaced, for a rollback."""

    def __str__(self) -> str:
        return f"{self.task_id}:{self.channel}"
