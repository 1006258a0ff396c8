"""Tries a function on one run or example before it is saved: a worker runs it, a page waits."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import msgspec
from django.db import transaction
from django.utils import timezone

from apps.core.callers import Caller
from apps.core.errors import AppError
from apps.core.sync_bridge import in_thread
from apps.datasets.models import Dataset
from apps.evaluators import dispatch
from apps.evaluators.code.checks import check_code
from apps.evaluators.code.process import CodeReply
from apps.evaluators.code.results import read_result
from apps.evaluators.code.subjects import PAYLOADS, build_example_subject, build_subject
from apps.evaluators.errors import BadEvaluator, TooManyTrials
from apps.evaluators.models import CodeTrial
from apps.evaluators.querysets import CodeTrialQuerySet
from apps.evaluators.services import code_runs, evaluators, subjects, traces
from apps.trace_store import run_store
from apps.tracing.models import Project

MAX_OPEN_TRIALS = 5
"""Of a workspace."""
WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.25
_RETENTION = timedelta(hours=1)
_OPEN = timedelta(seconds=WAIT_SECONDS)


@dataclass(frozen=True, slots=True)
class TrialJob:
    """A trial that this process runs. It has no lease: who waits for it tries again."""

    id: UUID
    organization_id: UUID
    code: str = field(repr=False)
    uid: int | None
    subject: bytes = field(repr=False)
    attempt: int = 1


@transaction.atomic
def create_trial(
    *,
    caller: Caller,
    name: str,
    code: str,
    dataset: Dataset | None,
    project: Project | None,
    run_id: UUID | None,
) -> tuple[CodeTrial, str]:
    """Ask a worker to run the function for a run, or the newest that the rule would score.

    Returns the trial and what the run is called. Raises `BadEvaluator` and `TooManyTrials`.
    """
    name = evaluators.new_evaluator(caller, name).name
    check_code(code, name)
    subject = subjects.find(caller, dataset, project, run_id)
    evaluators.lock_evaluators(caller.workspace_id)
    rows = CodeTrial.objects.for_workspace(caller.workspace_id).filter(ended_at=None)
    if rows.filter(created_at__gt=timezone.now() - _OPEN).count() >= MAX_OPEN_TRIALS:
        raise TooManyTrials(f"At most {MAX_OPEN_TRIALS} functions are tried at a time.")
    trial = CodeTrial(
        workspace_id=caller.workspace_id,
        organization_id=caller.organization_id,
        name=name,
        code=code,
        run_id=None if subject.run is None else subject.run.row.id,
        dataset=dataset if subject.run is None else None,
    )
    trial.save(force_insert=True)
    dispatch.evaluate()
    return trial, subject.name


async def wait_for(trial: CodeTrial) -> CodeTrial:
    """Return the ended trial, and delete it. Raises `BadEvaluator` if no worker ran it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_SECONDS
    try:
        while loop.time() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            ended = await in_thread(_find_ended, trial)
            if ended is not None:
                return ended
    finally:
        await in_thread(_delete, trial)
    raise BadEvaluator("No worker has run the function in time. Try again.")


def _find_ended(trial: CodeTrial) -> CodeTrial | None:
    rows = CodeTrial.objects.for_workspace(trial.workspace_id)
    return rows.filter(pk=trial.pk, ended_at__isnull=False).first()


def _delete(trial: CodeTrial) -> None:
    CodeTrial.objects.for_workspace(trial.workspace_id).filter(pk=trial.pk).delete()


def delete_old() -> None:
    """Delete trials that no page waits for any more. Safe to repeat."""
    _all_trials().filter(created_at__lt=timezone.now() - _RETENTION).delete()


def _all_trials() -> CodeTrialQuerySet:
    return CodeTrial.objects.across_workspaces(reason="a worker runs the trials of all workspaces")


def _waiting() -> CodeTrialQuerySet:
    return _all_trials().waiting().filter(created_at__gt=timezone.now() - _OPEN)


def has_due() -> bool:
    return _waiting().exists()


def claim(limit: int, excluded: Collection[UUID] = ()) -> list[TrialJob]:
    """Start waiting trials, one of each organization that is not excluded."""
    jobs = []
    with transaction.atomic():
        rows = _waiting().exclude(organization_id__in=excluded)
        ids = rows.order_by("organization_id", "created_at").distinct("organization_id")
        rows = _all_trials().waiting().filter(pk__in=list(ids.values_list("pk", flat=True)))
        claimed = list(rows.order_by("created_at").select_for_update(skip_locked=True)[:limit])
        for trial in claimed:
            trial.started_at = timezone.now()
        _all_trials().bulk_update(claimed, ["started_at"])
    for trial in claimed:
        try:
            subject = _build_subject(trial)
        except AppError as error:
            _end(trial, CodeReply(error=error.detail))
        else:
            uid = code_runs.find_uid(trial.organization_id)
            jobs.append(TrialJob(trial.pk, trial.organization_id, trial.code, uid, subject))
    return jobs


def _build_subject(trial: CodeTrial) -> bytes:
    if trial.run_id is None:
        if trial.dataset is None:
            raise BadEvaluator("The dataset was deleted.")
        return build_example_subject(subjects.newest_example(trial.dataset))
    run = run_store.get(trial.workspace_id, trial.run_id, payloads=PAYLOADS)
    if run is None:
        raise BadEvaluator("The run was removed.")
    return build_subject(run, traces.find_example(run))


def record_end(job: TrialJob, reply: CodeReply) -> None:
    """Store the result for the page that waits."""
    trial = _all_trials().filter(pk=job.id).first()
    if trial is not None:
        _end(trial, reply)


def _end(trial: CodeTrial, reply: CodeReply) -> None:
    """Store the result, unless the page has stopped waiting and deleted the trial."""
    error, scores = reply.error, None
    if not error:
        try:
            scores = [msgspec.to_builtins(score) for score in read_result(reply.result, trial.name)]
        except AppError as refusal:
            error = refusal.detail
    _all_trials().filter(pk=trial.pk).update(
        ended_at=timezone.now(), output=reply.output, error=error, scores=scores
    )
