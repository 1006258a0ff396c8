"""Creates and cancels experiment jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from apps.agent_server import errors as agent_errors
from apps.agent_server.scope import Scope, graph_context_for
from apps.agent_server.services import assistants, cancel_runs
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.connections import raw_cursor
from apps.core.ids import uuid7
from apps.datasets.models import Dataset, ExampleRevision
from apps.deployments import routes
from apps.deployments.models import Deployment
from apps.deployments.routes import STUDIO_USER
from apps.experiment_jobs import errors
from apps.experiment_jobs.input_mapping import check_mapping
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.querysets import ExperimentJobQuerySet
from apps.experiment_jobs.statuses import JobStatus
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.tracing.services import create_project

MAX_OPEN_JOBS = 20
"""Unfinished jobs of one workspace."""
MAX_STEPS = 100_000
"""Runs of one job."""
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
    deployment: Deployment
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


@transaction.atomic
def create_job(*, plan: JobPlan, user_id: UUID | None) -> ExperimentJob:
    """Create the experiment with a step for each example and repetition; a task executes them.

    Raises `NoExamples`, `TooManyRuns`, `TooManyJobs`, `InvalidMapping`, `ProjectNameTaken`, and
    the errors of an agent that does not serve or lacks the assistant.
    """
    dataset, workspace_id = plan.dataset, plan.dataset.workspace_id
    if plan.input_mapping is not None:
        check_mapping(plan.input_mapping)
    if plan.deployment.is_stopped:
        raise agent_errors.AgentStopped
    scope = scope_of(plan.deployment)
    assistant_id = _find_assistant(scope, plan.assistant_id)
    version_at = plan.version_at or dataset.latest_version_at
    example_ids = _find_examples(dataset, version_at, plan.splits, MAX_STEPS // plan.repetitions)
    _lock_jobs_of(workspace_id)
    jobs = ExperimentJob.objects.for_workspace(workspace_id)
    if jobs.unfinished().count() >= MAX_OPEN_JOBS:
        raise errors.TooManyJobs
    job = ExperimentJob(
        workspace_id=workspace_id,
        dataset=dataset,
        experiment=_create_experiment(plan, scope, assistant_id, version_at, len(example_ids)),
        deployment=plan.deployment,
        assistant_id=assistant_id,
        version_at=version_at,
        splits=list(plan.splits),
        input_mapping=plan.input_mapping,
        repetitions=plan.repetitions,
        concurrency=plan.concurrency,
        total_count=len(example_ids) * plan.repetitions,
        created_by_id=user_id,
    )
    job.save(force_insert=True)
    _add_steps(job, example_ids)
    record(
        Action.EXPERIMENT_STARTED,
        Target("experiment", job.experiment_id, job.experiment.name),
        after={
            "dataset_id": dataset.pk,
            "deployment": plan.deployment.name,
            "run_count": job.total_count,
        },
        workspace_id=workspace_id,
    )
    return job


def scope_of(deployment: Deployment) -> Scope:
    """Return the scope of the deployment's agent for the platform's own runs.

    Custom authentication sees the user that platform members are. Raises `NoSuchAgent`,
    `AgentNotReady`, and `PlatformUsersRefused`.
    """
    route = None if deployment.deleted_at else routes.find_route(deployment.slug)
    if route is None or route.deployment_id != deployment.pk:
        raise agent_errors.NoSuchAgent
    if route.active_revision_id is None:
        raise agent_errors.AgentNotReady
    auth = route.serving.auth
    if auth is None:
        return Scope(route)
    if auth.disable_studio_auth:
        raise errors.PlatformUsersRefused
    return Scope(route, user=STUDIO_USER, graph_context=graph_context_for(STUDIO_USER))


def _find_assistant(scope: Scope, name_or_id: str | None) -> UUID:
    if name_or_id is None:
        if len(scope.route.graph_ids) != 1:
            raise agent_errors.UnknownGraph("", scope.route.graph_ids)
        name_or_id = scope.route.graph_ids[0]
    return assistants.get(scope, assistants.resolve_id(scope, name_or_id)).assistant_id


def _find_examples(
    dataset: Dataset, version_at: datetime, splits: Sequence[str], max_count: int
) -> list[UUID]:
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
    plan: JobPlan, scope: Scope, assistant_id: UUID, version_at: datetime, example_count: int
) -> Project:
    metadata = {
        **plan.metadata,
        "num_repetitions": plan.repetitions,
        "dataset_version": version_at.isoformat(),
        "deployment_id": str(plan.deployment.pk),
        "deployment_name": plan.deployment.name,
        "revision_id": str(scope.route.active_revision_id),
        "assistant_id": str(assistant_id),
    }
    if plan.splits:
        metadata["dataset_splits"] = list(plan.splits)
    prefix = plan.prefix or plan.deployment.name
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
    route = None if job.deployment is None else routes.find_route(job.deployment.slug)
    if route is None:
        return  # the runs were deleted with the deployment
    steps = ExperimentStep.objects.for_workspace(job.workspace_id).running().filter(job=job)
    run_ids = [run_id for run_id in steps.values_list("agent_run_id", flat=True) if run_id]
    if run_ids:
        cancel_runs.cancel(Scope(route), "interrupt", run_ids=run_ids)
