"""Executes experiment jobs: records ended runs of their targets and starts the next ones.

A periodic task calls this every second; all state is in rows, so it resumes after any crash. One
transaction creates runs of targets with their root runs and marks the steps as running; another
records an end once, in the root run, the step and the job's counters. Each organization has a limit
of open runs, which its jobs share, so that experiments leave slots to other runs.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from apps.core import errors as core_errors
from apps.core.errors import AppError
from apps.core.json import dumps
from apps.datasets.models import ExampleRevision
from apps.experiment_jobs.dotted_orders import step_dotted_order
from apps.experiment_jobs.input_mapping import MissingInput, build_input
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.runners import ExperimentRunEnd, Runner, RunnerBusy, get_runner
from apps.experiment_jobs.services.jobs import stop_job
from apps.experiment_jobs.statuses import JobStatus, StepStatus
from apps.experiments.services.results import load_revisions
from apps.ingest.decoders import IngestRequest
from apps.ingest.operations import RunOperation, WireRun
from apps.ingest.services.ingest_runs import ingest
from apps.tracing.services import update_project
from apps.usage import quotas
from apps.usage.quotas import UsageLimitExceeded

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.9
"""Just under the period of the task, so that one task follows another."""
POLL_SECONDS = 0.1
MAX_ENDS = 20
"""Results that are in memory together."""
STEP_RETENTION = timedelta(days=1)
DELETE_BATCH_SIZE = 10_000


def run_slice(seconds: float = SLICE_SECONDS) -> None:
    """Advance the unfinished jobs of all organizations for about `seconds`."""
    deadline = time.monotonic() + seconds
    while organization_ids := _find_organizations():
        has_changes = False
        for organization_id in organization_ids:
            try:
                has_changes |= advance_organization(organization_id)
            except Exception:
                logger.exception("The experiment jobs of %s cannot advance.", organization_id)
        if time.monotonic() >= deadline:
            return
        if not has_changes:
            time.sleep(POLL_SECONDS)


def _find_organizations() -> list[UUID]:
    jobs = ExperimentJob.objects.across_workspaces(reason="the task serves all workspaces")
    rows = jobs.unfinished().order_by("workspace__organization")
    return list(rows.values_list("workspace__organization", flat=True).distinct())


@transaction.atomic
def advance_organization(organization_id: UUID) -> bool:
    """Record ended runs and start new ones; return whether a step changed.

    False at once if another task advances the organization.
    """
    if not _try_lock(organization_id):
        return False
    rows = ExperimentJob.objects.across_workspaces(reason="the limit is that of an organization")
    jobs = list(
        rows.unfinished()
        .filter(workspace__organization=organization_id)
        .select_related("experiment", "deployment", "dataset")
        .select_for_update(no_key=True, of=("self",))
        .order_by("pk")
    )
    has_changes = False
    for job in jobs:
        has_changes |= _record_ends(job)
    running = _count_running(jobs)
    for job, count in _share_slots(jobs, running).items():
        has_changes |= _start_or_stop(job, count)
    for job in jobs:
        _finish(job)
    return has_changes


def _try_lock(organization_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"experiment runs of organization {organization_id}"],
        )
        return bool(cursor.fetchone()[0])


# Ends of runs


@dataclass(frozen=True, slots=True)
class _Ended:
    """A step whose run has ended or was deleted."""

    step: ExperimentStep
    status: StepStatus
    update: RunOperation
    end: ExperimentRunEnd


def _record_ends(job: ExperimentJob) -> bool:
    steps = {
        step.agent_run_id: step for step in _steps(job).running() if step.agent_run_id is not None
    }
    if not steps:
        return False
    runner = get_runner(job)
    ended = runner.find_ended(job, list(steps))
    for first in range(0, len(ended), MAX_ENDS):
        batch = ended[first : first + MAX_ENDS]
        ends = runner.read_ends(job, batch)
        _record(job, [_build_end(job, steps[run_id], ends[run_id]) for run_id in batch])
    return bool(ended)


def _build_end(job: ExperimentJob, step: ExperimentStep, end: ExperimentRunEnd) -> _Ended:
    update = _root_update(job, step, ended_at=end.ended_at, outputs=end.outputs, error=end.error)
    return _Ended(step, _step_status(job, end), update, end)


def _step_status(job: ExperimentJob, end: ExperimentRunEnd) -> StepStatus:
    if end.error is None:
        return StepStatus.SUCCEEDED
    is_cancelled = job.status == JobStatus.CANCELLING and end.is_interrupted
    return StepStatus.CANCELLED if is_cancelled else StepStatus.FAILED


def _record(job: ExperimentJob, ended: Sequence[_Ended]) -> None:
    """Store the ends in root runs, steps and job."""
    ended = _write_ends(job, ended)
    for status in {item.status for item in ended}:
        ids = [item.step.pk for item in ended if item.status == status]
        _steps(job).filter(pk__in=ids).update(status=status)
    get_runner(job).release(job, [item.end for item in ended])
    statuses = Counter(item.status for item in ended)
    job.failed_count += statuses[StepStatus.FAILED]
    job.succeeded_count += statuses[StepStatus.SUCCEEDED]
    job.save(update_fields=["failed_count", "succeeded_count", "updated_at"])


def _write_ends(job: ExperimentJob, ended: Sequence[_Ended]) -> list[_Ended]:
    """Write the ends of the root runs; a run whose outputs are refused fails with the reason."""
    try:
        with transaction.atomic():
            refused = _ingest(job, [item.update for item in ended])
    except AppError as error:
        if len(ended) > 1:
            return [written for item in ended for written in _write_ends(job, [item])]
        refused = {ended[0].step.pk: error.detail}
    return [
        _write_refusal(job, item, refused[item.step.pk]) if item.step.pk in refused else item
        for item in ended
    ]


def _write_refusal(job: ExperimentJob, item: _Ended, reason: str) -> _Ended:
    update = _root_update(job, item.step, error=f"The result was refused: {reason}")
    try:
        with transaction.atomic():
            _ingest(job, [update])
    except AppError as error:
        logger.warning("The root run %s stays open: %s", item.step.pk, error.detail)
    return _Ended(item.step, StepStatus.FAILED, update, item.end)


# Starts of runs


def _count_running(jobs: Sequence[ExperimentJob]) -> dict[UUID, int]:
    return {job.pk: _steps(job).running().count() for job in jobs}


def _share_slots(
    jobs: Sequence[ExperimentJob], running: dict[UUID, int]
) -> dict[ExperimentJob, int]:
    """Return how many runs each job may start: jobs with fewer open runs come first."""
    free = settings.MAX_EXPERIMENT_RUNS - sum(running.values())
    grants = {job: 0 for job in jobs if job.status == JobStatus.RUNNING}
    waiting = {job: job.total_count - job.finished_count - running[job.pk] for job in grants}
    while free > 0:
        eligible = [
            job
            for job, count in grants.items()
            if count < waiting[job] and running[job.pk] + count < job.concurrency
        ]
        if not eligible:
            break
        grants[min(eligible, key=lambda job: running[job.pk] + grants[job])] += 1
        free -= 1
    # A job without a grant is included, because its dataset or deployment may be gone.
    return grants


def _start_or_stop(job: ExperimentJob, count: int) -> bool:
    """Start up to `count` runs, or stop the job if it cannot continue."""
    try:
        with transaction.atomic():
            return _start(job, count)
    except UsageLimitExceeded as error:
        if "Retry-After" in error.headers:
            return False  # a limit per hour
        stop_job(job, error.detail)
        return True
    except AppError as error:
        stop_job(job, error.detail)
        return True


def _start(job: ExperimentJob, count: int) -> bool:
    """Start runs; raises an `AppError` if no run of the job can be started."""
    if job.dataset.deleted_at is not None or job.experiment.deleted_at is not None:
        raise core_errors.Conflict("The dataset or the experiment was deleted.")
    runner = get_runner(job)
    if not runner.check(job) or not count:
        return False
    quotas.check(job.workspace_id)
    steps = list(_steps(job).pending().order_by("position")[:count])
    revisions = load_revisions(job.dataset, [step.example_id for step in steps], job.version_at)
    creates, started, failed = [], [], []
    for step in steps:
        step.started_at = timezone.now()
        revision = revisions.get(step.example_id)
        try:
            step.agent_run_id = _create_run(job, step, runner, revision)
        except RunnerBusy:
            break
        except (MissingInput, AppError) as error:
            failed.append(step)
            creates.append(_root_create(job, step, revision, error=str(error)))
        except DatabaseError:
            raise
        except Exception:
            # Otherwise the step is tried for ever, and no job of the organization advances.
            logger.exception("The step %s cannot be started.", step.pk)
            failed.append(step)
            creates.append(_root_create(job, step, revision, error="Internal error."))
        else:
            step.status = StepStatus.RUNNING
            started.append(step)
            creates.append(_root_create(job, step, revision))
    if not creates:
        return False
    for detail in _ingest(job, creates).values():
        raise core_errors.Conflict(f"The runs of the experiment cannot be stored: {detail}")
    for step in failed:
        step.status = StepStatus.FAILED
    _steps(job).bulk_update([*started, *failed], ["status", "agent_run_id", "started_at"])
    if failed:
        job.failed_count += len(failed)
        job.save(update_fields=["failed_count", "updated_at"])
    return True


def _create_run(
    job: ExperimentJob, step: ExperimentStep, runner: Runner, revision: ExampleRevision | None
) -> UUID:
    """Create the run of the step, below its root run, and return the id."""
    if revision is None:
        raise MissingInput("The example was erased.")
    return runner.start(job, step, build_input(job.input_mapping, revision.inputs))


# Root runs


def _root_create(
    job: ExperimentJob,
    step: ExperimentStep,
    revision: ExampleRevision | None,
    *,
    error: str | None = None,
) -> RunOperation:
    """The root run of a step; with an error, a run that has ended."""
    assert step.started_at is not None  # noqa: S101
    run = _wire_run(job, step)
    run.name = get_runner(job).root_name(job)
    run.run_type = "chain"
    run.start_time = step.started_at.isoformat()
    run.reference_example_id = step.example_id
    run.inputs = msgspec.Raw(dumps({} if revision is None else revision.inputs))
    if error is not None:
        run.end_time = run.start_time
        run.error = msgspec.Raw(msgspec.json.encode(error))
    return RunOperation(is_update=False, run=run)


def _root_update(
    job: ExperimentJob,
    step: ExperimentStep,
    *,
    ended_at: Any = None,
    outputs: msgspec.Raw | None = None,
    error: str | None = None,
) -> RunOperation:
    assert step.started_at is not None  # noqa: S101
    run = _wire_run(job, step)
    run.end_time = max(step.started_at, ended_at or timezone.now()).isoformat()
    if outputs is not None:
        run.outputs = outputs
    if error is not None:
        run.error = msgspec.Raw(msgspec.json.encode(error))
    return RunOperation(is_update=True, run=run)


def _wire_run(job: ExperimentJob, step: ExperimentStep) -> WireRun:
    return WireRun(
        id=step.pk,
        trace_id=step.pk,
        dotted_order=step_dotted_order(step),
        session_id=job.experiment_id,
    )


def _ingest(job: ExperimentJob, operations: list[RunOperation]) -> dict[UUID, str]:
    """Store the runs; return the reasons of refused ones by id."""
    size = sum(
        len(bytes(operation.run.inputs)) + len(bytes(operation.run.outputs))
        for operation in operations
    )
    request = IngestRequest(operations, protocol="platform", size=size)
    result = ingest(job.workspace_id, request)
    return {UUID(error.item): str(error) for error in result.rejected}


# End of jobs


def _finish(job: ExperimentJob) -> None:
    """Set the final status of a job without open runs, unless it has runs to start."""
    is_complete = job.finished_count == job.total_count
    if job.status == JobStatus.RUNNING and not is_complete:
        return
    if not is_complete and _steps(job).running().exists():
        return
    if job.error:
        job.status = JobStatus.FAILED
    elif job.status == JobStatus.CANCELLING:
        job.status = JobStatus.CANCELLED
    else:
        job.status = JobStatus.COMPLETED
    job.ended_at = timezone.now()
    job.save(update_fields=["status", "ended_at", "updated_at"])
    if job.experiment.deleted_at is None:
        update_project(project=job.experiment, changes={"end_time": job.ended_at})


def delete_old_steps() -> int:
    """Delete the steps of jobs that ended a day ago; their runs and counts stay."""
    jobs = ExperimentJob.objects.across_workspaces(reason="old steps of all workspaces")
    ended = jobs.filter(ended_at__lt=timezone.now() - STEP_RETENTION)
    steps = ExperimentStep.objects.across_workspaces(reason="the steps of these jobs")
    deleted = 0
    while ids := list(steps.filter(job__in=ended).values_list("pk", flat=True)[:DELETE_BATCH_SIZE]):
        deleted += steps.filter(pk__in=ids).delete()[0]
    return deleted


def _steps(job: ExperimentJob) -> Any:
    return ExperimentStep.objects.for_workspace(job.workspace_id).filter(job=job)
