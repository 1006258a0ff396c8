"""Creates, cancels and resumes experiment jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.connections import raw_cursor
from apps.core.ids import uuid7
from apps.datasets.models import Dataset, ExampleRevision
from apps.deployments.models import Deployment
from apps.experiment_jobs import errors
from apps.experiment_jobs.evaluator_choice import check_choice
from apps.experiment_jobs.input_mapping import check_mapping
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.querysets import ExperimentJobQuerySet
from apps.experiment_jobs.runners import AGENT, PreparedTarget, get_runner
from apps.experiment_jobs.services.agent_runner import prepare_agent
from apps.experiment_jobs.statuses import JobStatus, StepStatus
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.services import create_project
from apps.tracing.services.deletion import delete_traces

MAX_OPEN_JOBS = 20
"""Unfinished jobs of one workspace."""
MAX_STEPS = 100_000
"""Runs of one job."""
MAX_STEPS_PER_DAY = 1_000_000
"""Runs of all jobs of a workspace; rows of cancelled ones are kept for a day, too."""
MAX_REPETITIONS = 100
MAX_CONCURRENCY = 64
MAX_PREFIX_LENGTH = 900
START_PERMISSIONS = (
    Permission.DATASETS_READ,
    Permission.PROJECTS_WRITE,
    Permission.AGENTS_RUN,
)
"""Required to start an experiment, next to `experiments:write`."""

_COPY_STEPS = """
COPY experiment_jobs_experimentstep (
  id, workspace_id, created_at, job_id, example_id, repetition, position, status
) FROM STDIN
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a job runs; the experiment's name is generated if there is none."""

    dataset: Dataset
    deployment: Deployment | None = None
    """None for a target that is no deployment."""
    assistant_id: str | None = None
    """The id of an assistant, or the name of a graph; None for the deployment's only graph."""
    version_at: datetime | None = None
    """None for the latest version."""
    splits: Sequence[str] = ()
    input_mapping: dict[str, Any] | None = None
    repetitions: int = 1
    concurrency: int = 4
    name: str | None = None
    prefix: str | None = None
    description: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    evaluator_rule_ids: Sequence[UUID] | None = None
    """The rules of the dataset that score the rows; None for all enabled ones."""


def create_job(*, plan: JobPlan, user_id: UUID | None) -> ExperimentJob:
    """Create an experiment on the plan's deployment.

    Raises the errors of `create_target_job`, and those of an agent that does not serve or lacks
    the assistant.
    """
    assert plan.deployment is not None  # noqa: S101  (other targets have their own service)
    target = prepare_agent(plan.deployment, plan.assistant_id)
    return create_target_job(plan=plan, runner=AGENT, target=target, user_id=user_id)


@transaction.atomic
def create_target_job(
    *, plan: JobPlan, runner: str, target: PreparedTarget, user_id: UUID | None
) -> ExperimentJob:
    """Create the experiment with a step for each example and repetition; a task executes them.

    Raises `NoExamples`, `TooManyRuns`, `TooManyJobs`, `TooManyNewRuns`, `InvalidMapping`, and
    `ProjectNameTaken`.
    """
    dataset, workspace_id = plan.dataset, plan.dataset.workspace_id
    if plan.input_mapping is not None:
        check_mapping(plan.input_mapping)
    rule_ids = plan.evaluator_rule_ids
    if rule_ids is not None:
        rule_ids = check_choice(dataset, rule_ids)
    version_at = plan.version_at or dataset.latest_version_at
    example_ids = find_examples(dataset, version_at, plan.splits, MAX_STEPS // plan.repetitions)
    _lock_jobs_of(workspace_id)
    jobs = ExperimentJob.objects.for_workspace(workspace_id)
    if jobs.unfinished().count() >= MAX_OPEN_JOBS:
        raise errors.TooManyJobs
    count = len(example_ids) * plan.repetitions
    recent = jobs.filter(created_at__gt=timezone.now() - timedelta(days=1))
    if (recent.aggregate(sum=Sum("total_count"))["sum"] or 0) + count > MAX_STEPS_PER_DAY:
        raise errors.TooManyNewRuns
    job = ExperimentJob(
        workspace_id=workspace_id,
        dataset=dataset,
        experiment=_create_experiment(plan, target, version_at, len(example_ids)),
        deployment=target.deployment,
        assistant_id=target.assistant_id,
        runner=runner,
        target=target.content,
        version_at=version_at,
        splits=list(plan.splits),
        input_mapping=plan.input_mapping,
        evaluator_rule_ids=rule_ids,
        repetitions=plan.repetitions,
        concurrency=plan.concurrency,
        total_count=count,
        created_by_id=user_id,
    )
    job.save(force_insert=True)
    _add_steps(job, example_ids)
    record(
        Action.EXPERIMENT_STARTED,
        Target("experiment", job.experiment_id, job.experiment.name),
        after={
            "dataset_id": dataset.pk,
            "deployment" if target.deployment is not None else "target": target.name,
            "run_count": job.total_count,
        },
        workspace_id=workspace_id,
    )
    return job


def find_examples(
    dataset: Dataset, version_at: datetime, splits: Sequence[str], max_count: int
) -> list[UUID]:
    """The ids of the examples of a version, newest first. Raises `NoExamples`, `TooManyRuns`."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    rows = rows.as_of(version_at)
    if splits:
        rows = rows.in_splits(splits)
    ids = list(rows.newest_first().values_list("example_id", flat=True)[: max_count + 1])
    if not ids:
        raise errors.NoExamples
    if len(ids) > max_count:
        raise errors.TooManyRuns(
            f"An experiment may have at most {MAX_STEPS} runs; select a split or fewer repetitions."
        )
    return ids


def _lock_jobs_of(workspace_id: UUID) -> None:
    """Serialize the creation of jobs in the workspace until the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"experiment jobs of workspace {workspace_id}"],
        )


def _create_experiment(
    plan: JobPlan, target: PreparedTarget, version_at: datetime, example_count: int
) -> Project:
    metadata = {
        **plan.metadata,
        "num_repetitions": plan.repetitions,
        "dataset_version": version_at.isoformat(),
        **target.metadata,
    }
    if plan.splits:
        metadata["dataset_splits"] = list(plan.splits)
    prefix = plan.prefix or target.name
    return create_project(
        workspace_id=plan.dataset.workspace_id,
        name=plan.name or f"{prefix}-{uuid7().hex[-8:]}",
        description=plan.description,
        start_time=timezone.now(),
        reference_dataset_id=plan.dataset.pk,
        plan={"num_examples": example_count, "num_repetitions": plan.repetitions},
        kicked_off_by="platform",
        extra={"metadata": metadata},
    )


def _add_steps(job: ExperimentJob, example_ids: Sequence[UUID]) -> None:
    now = timezone.now()
    with raw_cursor() as cursor, cursor.copy(_COPY_STEPS) as copy:
        for position in range(job.total_count):
            repetition, index = divmod(position, len(example_ids))
            copy.write_row(
                (
                    uuid7(),
                    job.workspace_id,
                    now,
                    job.pk,
                    example_ids[index],
                    repetition + 1,
                    position,
                    "pending",
                )
            )


def get_job(workspace_id: UUID, job_id: UUID) -> ExperimentJob:
    """Return the job with its experiment and `running_count`; raises `JobNotFound`."""
    job = list_jobs(workspace_id).filter(pk=job_id).first()
    if job is None:
        raise errors.JobNotFound
    return job


def list_jobs(workspace_id: UUID) -> ExperimentJobQuerySet:
    """The jobs whose dataset and experiment are not deleted, with their `running_count`."""
    jobs = ExperimentJob.objects.for_workspace(workspace_id).with_running()
    present = jobs.filter(dataset__deleted_at=None, experiment__deleted_at=None)
    return present.select_related("experiment", "deployment")


@transaction.atomic
def cancel_job(*, job: ExperimentJob) -> ExperimentJob:
    """Start no further runs and stop the open ones. Raises `JobFinished`.

    No effect on a job that is being cancelled. The job ends when its last run has stopped.
    """
    row = _lock(job)
    if not row.is_open:
        raise errors.JobFinished
    if row.status == JobStatus.CANCELLING:
        return row
    stop_job(row)
    record(
        Action.EXPERIMENT_CANCELLED,
        Target("experiment", row.experiment_id, row.experiment.name),
        after={"finished": row.finished_count, "run_count": row.total_count},
        workspace_id=row.workspace_id,
    )
    return row


def _lock(job: ExperimentJob) -> ExperimentJob:
    rows = ExperimentJob.objects.for_workspace(job.workspace_id)
    locked = rows.select_for_update(no_key=True, of=("self",))
    return locked.select_related("experiment", "deployment").get(pk=job.pk)


def stop_job(job: ExperimentJob, error: str = "") -> None:
    """Start no further runs and interrupt the open ones. The job's row is locked."""
    job.status, job.error = JobStatus.CANCELLING, error
    job.save(update_fields=["status", "error", "updated_at"])
    steps = ExperimentStep.objects.for_workspace(job.workspace_id).running().filter(job=job)
    run_ids = [run_id for run_id in steps.values_list("agent_run_id", flat=True) if run_id]
    if run_ids:
        get_runner(job).stop(job, run_ids)


def resume_job(*, job: ExperimentJob) -> ExperimentJob:
    """Continue a job that was cancelled or failed, with the steps that have no result.

    Failed steps run again: their results are deleted. Raises `JobNotResumable` and
    `TooManyJobs`.
    """
    with transaction.atomic():
        _lock_jobs_of(job.workspace_id)
        row = _lock(job)
        jobs = ExperimentJob.objects.for_workspace(job.workspace_id)
        if not row.is_open and jobs.unfinished().count() >= MAX_OPEN_JOBS:
            raise errors.TooManyJobs
        steps = ExperimentStep.objects.for_workspace(row.workspace_id).filter(job=row)
        again = steps.filter(status__in=[StepStatus.FAILED, StepStatus.CANCELLED])
        if row.is_open or row.finished_count + _count_unstarted(row) < row.total_count:
            raise errors.JobNotResumable
        replaced = list(again)
        if not replaced and not steps.pending().exists():
            raise errors.JobNotResumable
        _replace_steps(row, replaced)
        row.failed_count = 0
        row.status, row.error, row.ended_at = JobStatus.RUNNING, "", None
        row.save(update_fields=["failed_count", "status", "error", "ended_at", "updated_at"])
        record(
            Action.EXPERIMENT_RESUMED,
            Target("experiment", row.experiment_id, row.experiment.name),
            after={"finished": row.finished_count, "run_count": row.total_count},
            workspace_id=row.workspace_id,
        )
    if replaced:
        delete_traces(project=row.experiment, trace_ids=[step.pk for step in replaced])
    return row


def _count_unstarted(job: ExperimentJob) -> int:
    """Steps without a result; steps of jobs that ended long ago are deleted."""
    steps = ExperimentStep.objects.for_workspace(job.workspace_id).filter(job=job)
    return steps.filter(status__in=[StepStatus.PENDING, StepStatus.CANCELLED]).count()


def _replace_steps(job: ExperimentJob, steps: Sequence[ExperimentStep]) -> None:
    """Put steps with new ids, that is with new root runs, in the places of these."""
    rows = ExperimentStep.objects.for_workspace(job.workspace_id)
    rows.filter(pk__in=[step.pk for step in steps]).delete()
    rows.bulk_create(
        ExperimentStep(
            workspace_id=job.workspace_id,
            job=job,
            example_id=step.example_id,
            repetition=step.repetition,
            position=step.position,
        )
        for step in steps
    )
