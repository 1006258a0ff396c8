"""Tasks of A2A clients."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from apps.agent_server.models.threads import Thread
from apps.agent_server.querysets import A2ATaskQuerySet
from apps.agent_server.statuses import TaskState
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.core.verbatim_json import VerbatimJSONField
from apps.deployments.models import Deployment


class A2ATask(WorkspaceOwned):
    """A task of an A2A client: a run on a thread, or several runs that interrupts separate.

    The transaction that ends a run writes the state and the output, so later runs of the thread
    do not change an ended task.
    """

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, related_name="a2a_tasks", db_index=False
    )
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="a2a_tasks")
    assistant_id = models.UUIDField()
    context_id = models.CharField(max_length=255)
    """The client's name of the thread."""
    run_id = models.UUIDField(unique=True)
    """The newest run. No foreign key: a deleted run leaves a cancelled task."""
    state = models.CharField(max_length=20, choices=TaskState, blank=True)
    """Empty while the run is open or if it was deleted."""
    history = VerbatimJSONField(default=list)
    """The client's messages, and the questions that they answered, as A2A 1.0 writes them."""
    output = VerbatimJSONField(null=True, blank=True)
    """The values of the graph's state at the end of the newest run."""
    interrupts = VerbatimJSONField(null=True, blank=True)
    """The questions of a task that requires input, by graph task: `{task: [{id, value}]}`."""
    error = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    """When a client's message or the end of a run last changed the state."""

    objects = TenantManager(A2ATaskQuerySet)
    unscoped = A2ATaskQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(
                fields=["workspace", "deployment", "assistant_id", "-updated_at"],
                name="a2a_task_newest",
            )
        ]

    def __str__(self) -> str:
        return str(self.pk)
