"""Experiments that the platform runs itself, in durable steps (docs/adr/0033)."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned, WorkspaceOwnedUnchecked
from apps.datasets.models import Dataset
from apps.deployments.models import Deployment
from apps.experiment_jobs.querysets import ExperimentJobQuerySet, ExperimentStepQuerySet
from apps.experiment_jobs.runners import AGENT
from apps.experiment_jobs.statuses import OPEN, JobStatus, StepStatus
from apps.organizations.models import User
from apps.tracing.models import Project


class ExperimentJob(WorkspaceOwned):
    """The execution of one experiment: the examples of a dataset version on one target.

    The row's lock serializes starting runs, recording their ends, and cancellation.
    """

    created_at = models.DateTimeField(default=timezone.now)
    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="+", db_index=False)
    experiment = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    deployment = models.ForeignKey(
        Deployment, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    """Null for other targets, and after the deployment's rows were removed."""
    assistant_id = models.UUIDField(null=True)
    runner = models.CharField(max_length=20, default=AGENT, db_default=AGENT)
    """The name of the registered runner that executes the steps."""
    target = models.JSONField(null=True)
    """What the runner needs of a target that is no deployment."""
    version_at = models.DateTimeField()
    """The version of the dataset whose examples are run."""
    splits = ArrayField(models.TextField(), default=list)
    """Only examples in one of these splits are run; empty for all."""
    input_mapping = models.JSONField(null=True)
    """The template of the runs' input; null for the examples' inputs as they are."""
    evaluator_rule_ids = ArrayField(models.UUIDField(), null=True)
    """The rules of the dataset that evaluate the runs; null for all."""
    repetitions = models.PositiveIntegerField()
    concurrency = models.PositiveIntegerField()
    status = models.CharField(max_length=12, choices=JobStatus, default=JobStatus.RUNNING)
    total_count = models.PositiveIntegerField(default=0)
    succeeded_count = models.PositiveIntegerField(default=0)
    failed_count = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)
    """Why the job cannot continue; empty for other jobs."""
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)
    ended_at = models.DateTimeField(null=True)

    objects = TenantManager(ExperimentJobQuerySet)
    unscoped = ExperimentJobQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [models.UniqueConstraint(fields=["experiment"], name="experiment_job_once")]
        indexes = [
            models.Index(
                fields=["workspace", "dataset", "-created_at", "-id"], name="experiment_job_newest"
            ),
            models.Index(fields=["dataset"], name="experiment_job_of_dataset"),
            models.Index(fields=["deployment"], name="experiment_job_deployment"),
            models.Index(
                fields=["workspace"],
                condition=Q(status__in=sorted(OPEN)),
                name="experiment_job_open",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def target_name(self) -> str:
        """What the job runs, in a word."""
        if self.runner != AGENT:
            return "Playground"
        return self.deployment.name if self.deployment is not None else "Deleted deployment"

    @property
    def finished_count(self) -> int:
        return self.succeeded_count + self.failed_count


class ExperimentStep(WorkspaceOwnedUnchecked):
    """One repetition of one example. `id` is the id of its root run in the experiment.

    Created with the job, so that a crash neither loses nor repeats an example. The run of its
    target is created in the transaction that makes it `running`.
    """

    job = models.ForeignKey(ExperimentJob, models.CASCADE, related_name="steps", db_index=False)
    example_id = models.UUIDField()
    repetition = models.PositiveIntegerField()
    position = models.PositiveIntegerField()
    """The order of execution: all examples once, then all of them again."""
    status = models.CharField(max_length=10, choices=StepStatus, default=StepStatus.PENDING)
    agent_run_id = models.UUIDField(null=True)
    """The run of the target, whichever its runner is."""
    started_at = models.DateTimeField(null=True)

    objects = TenantManager(ExperimentStepQuerySet)
    unscoped = ExperimentStepQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "job", "example_id", "repetition"],
                name="experiment_step_once",
            )
        ]
        indexes = [
            models.Index(fields=["job"], name="experiment_step_of_job"),
            models.Index(
                fields=["job", "position"],
                condition=Q(status="pending"),
                name="experiment_step_pending",
            ),
            models.Index(
                fields=["job"], condition=Q(status="running"), name="experiment_step_running"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.example_id} {self.repetition}"
