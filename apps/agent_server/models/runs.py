"""Agent runs."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.agent_server.models.threads import Thread
from apps.agent_server.querysets import AgentRunQuerySet
from apps.agent_server.statuses import MultitaskStrategy, RunStatus
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.deployments.models import Deployment, Revision


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
    """The client's request: input, command, config, context, stream modes and so on."""
    multitask_strategy = models.CharField(
        max_length=12, choices=MultitaskStrategy, default=MultitaskStrategy.ENQUEUE
    )
    on_completion = models.CharField(max_length=10, default="keep")
    """What happens to a stateless run's thread: `delete` or `keep`."""
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
                fields=["lease_expires_at"], condition=Q(status="running"), name="agent_run_leased"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


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
