"""Tries a judge on one run or example before it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.utils import timezone

from apps.core.callers import Caller
from apps.core.sync_bridge import in_thread
from apps.datasets.models import Dataset
from apps.evaluators.judge import Judge, resolve
from apps.evaluators.scoring import Score, read_scores
from apps.evaluators.services import evaluators, subjects, traces
from apps.evaluators.services.subjects import TrialSubject
from apps.evaluators.variables import RUN_FIELDS, Subject
from apps.evaluators.wire import StructuredBody
from apps.playground.services.call_records import CallRecord
from apps.playground.services.completion import complete_recorded
from apps.playground.services.streaming import ColumnCall
from apps.providers.chat import ChatMessage
from apps.providers.client import prepare_call
from apps.tracing.models import Project
from apps.usage import quotas


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
    subject = subjects.find(caller, dataset, project, run_id)
    chat = judge.build_chat(_read_subject(subject))
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
    return PreparedTrial(judge, ColumnCall(record, call), subject.name)


async def make_trial(trial: PreparedTrial) -> TrialResult:
    """Ask the judge. Raises `BadJudgement`, `PlaygroundBusy`, and the errors of providers."""
    execution, _ = await complete_recorded(trial.column)
    scores = await in_thread(read_scores, trial.judge.schema, execution.reply.text)
    return TrialResult(scores, trial.column.record.run_id)


def _read_subject(subject: TrialSubject) -> Subject:
    if subject.run is not None:
        return traces.read_subject(subject.run)
    assert subject.example is not None  # noqa: S101  (there is one or the other)
    example = subject.example
    return Subject(
        inputs=example.inputs,
        outputs=example.outputs,
        reference=example.outputs,
        run=dict.fromkeys(RUN_FIELDS),
    )
