"""Tries a judge on one run or example before it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.utils import timezone

from apps.core.callers import Caller
from apps.core.sync_bridge import in_thread
from apps.datasets.models import Dataset, ExampleRevision
from apps.evaluators.errors import BadEvaluator
from apps.evaluators.judge import Judge, resolve
from apps.evaluators.scoring import Score, read_scores
from apps.evaluators.services import evaluators, traces
from apps.evaluators.variables import RUN_FIELDS, Subject
from apps.evaluators.wire import StructuredBody
from apps.playground.services.call_records import CallRecord
from apps.playground.services.completion import complete_recorded
from apps.playground.services.streaming import ColumnCall
from apps.providers.chat import ChatMessage
from apps.providers.client import prepare_call
from apps.trace_store import Payload, RunDetail, RunQuery, run_store
from apps.tracing.models import Project
from apps.usage import quotas

_MAX_EXPERIMENTS = 5


@dataclass(frozen=True, slots=True)
class PreparedTrial:
    """A judge with its request for one run or example."""

    judge: Judge
    column: ColumnCall = field(repr=False)
    subject_name: str

    @property
    def messages(self) -> Sequence[ChatMessage]:
        return self.column.record.chat.messages


@dataclass(frozen=True, slots=True)
class TrialResult:
    scores: Sequence[Score]
    judge_run_id: UUID


def prepare_trial(
    *,
    caller: Caller,
    name: str,
    body: StructuredBody,
    dataset: Dataset | None,
    project: Project | None,
    run_id: UUID | None = None,
) -> PreparedTrial:
    """Prepare a call of the judge for a run, or without one for the newest that the rule scores.

    Raises `BadEvaluator`, `ValueMissing`, and the errors of providers.
    """
    evaluator = evaluators.new_evaluator(caller, name)
    evaluators.apply_structured(caller, evaluator, body)
    judge = resolve(evaluator)
    subject, subject_name = _find_subject(caller, dataset, project, run_id)
    chat = judge.build_chat(subject)
    call = prepare_call(
        workspace_id=caller.workspace_id, organization_id=caller.organization_id, chat=chat
    )
    quotas.check(caller.workspace_id)
    record = CallRecord(
        workspace_id=caller.workspace_id,
        setting=judge.setting,
        chat=chat,
        started_at=timezone.now(),
        run_name=evaluator.name,
        metadata={"evaluator_trial": True},
        project_id=traces.judges_project(caller.workspace_id).pk,
    )
    return PreparedTrial(judge, ColumnCall(record, call), subject_name)


async def make_trial(trial: PreparedTrial) -> TrialResult:
    """Ask the judge. Raises `BadJudgement`, `PlaygroundBusy`, and the errors of providers."""
    execution, _ = await complete_recorded(trial.column)
    scores = await in_thread(read_scores, trial.judge.schema, execution.reply.text)
    return TrialResult(scores, trial.column.record.run_id)


def _find_subject(
    caller: Caller, dataset: Dataset | None, project: Project | None, run_id: UUID | None
) -> tuple[Subject, str]:
    if run_id is not None:
        run = run_store.get(caller.workspace_id, run_id)
        if run is None:
            raise BadEvaluator("The workspace has no such run.")
        return traces.read_subject(run), f"the run {run.row.name}"
    run = _find_newest(caller.workspace_id, dataset, project)
    if run is not None:
        return traces.read_subject(run), f"the run {run.row.name}"
    if dataset is None:
        raise BadEvaluator("The project has no finished trace yet.")
    return _read_example(dataset), "an example, with its reference as the output"


def _find_newest(
    workspace_id: UUID, dataset: Dataset | None, project: Project | None
) -> RunDetail | None:
    """The newest trace that ended without an error."""
    if project is not None:
        project_ids = [project.pk]
    else:
        rows = Project.objects.for_workspace(workspace_id).present()
        rows = rows.filter(reference_dataset_id=None if dataset is None else dataset.pk)
        ids = rows.order_by("-start_time").values_list("pk", flat=True)
        project_ids = list(ids[:_MAX_EXPERIMENTS])
    if not project_ids:
        return None
    query = RunQuery(project_ids=project_ids, is_root=True, has_error=False)
    payloads = [Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR]
    page = run_store.query(workspace_id, query, limit=5, payloads=payloads)
    return next((run for run in page.runs if run.row.end_time is not None), None)


def _read_example(dataset: Dataset) -> Subject:
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    revision = rows.as_of(None).newest_first().first()
    if revision is None:
        raise BadEvaluator("The dataset has no example yet.")
    return Subject(
        inputs=revision.inputs,
        outputs=revision.outputs,
        reference=revision.outputs,
        run=dict.fromkeys(RUN_FIELDS),
    )
