"""Tries a judge on one run or example before it is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.utils import timezone

from apps.core.callers import Caller
from apps.core.sync_bridge import in_thread
from apps.datasets.models import Dataset
from apps.evaluators import variables
from apps.evaluators.errors import BadEvaluatorRule
from apps.evaluators.judge import Judge, resolve
from apps.evaluators.models import Evaluator
from apps.evaluators.scoring import Score, read_scores
from apps.evaluators.services import evaluators, rules, subjects, traces
from apps.evaluators.services.subjects import TrialSubject
from apps.evaluators.variables import RUN_FIELDS, Subject
from apps.evaluators.wire import RuleTrialBody, StructuredBody
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
    values: Mapping[str, Any] = field(repr=False)
    """Of the variables of the prompt."""

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
    subject = subjects.find(caller, dataset, project, run_id)
    return _prepare(caller, evaluator, _read_subject(subject), subject.name)


def prepare_rule_trial(*, caller: Caller, body: RuleTrialBody) -> PreparedTrial:
    """Prepare a call of the judge of a rule that is not saved, for the values of the body.

    Raises as `prepare_trial`, and `BadEvaluatorRule`.
    """
    evaluator = rules.build_rule(caller, body).evaluator
    if evaluator is None:
        raise BadEvaluatorRule("`evaluators`: only judges are tried here.")
    if evaluator.is_code:
        raise BadEvaluatorRule("`code_evaluators`: only judges are tried here.")
    subject = Subject(
        inputs=body.test_inputs,
        outputs=body.test_outputs,
        reference=body.test_reference_outputs,
        run=dict.fromkeys(RUN_FIELDS),
    )
    return _prepare(caller, evaluator, subject, "the given values")


def _prepare(
    caller: Caller, evaluator: Evaluator, subject: Subject, subject_name: str
) -> PreparedTrial:
    judge = resolve(evaluator)
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
    values = variables.read_values(judge.mapping, subject)
    return PreparedTrial(judge, ColumnCall(record, call), subject_name, values)


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
