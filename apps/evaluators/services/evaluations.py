"""Claims and records the evaluations of judges, for the workers that make their calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core.errors import AppError
from apps.evaluators.errors import BadEvaluator, BadJudgement
from apps.evaluators.judge import Judge, resolve
from apps.evaluators.models import Evaluation, EvaluationStatus, Evaluator, EvaluatorRule
from apps.evaluators.scoring import Score, read_scores
from apps.evaluators.services import leases, queueing, spend, traces
from apps.evaluators.services.scores import write_feedback
from apps.evaluators.variables import needs_output
from apps.playground.services import call_records
from apps.playground.services.call_records import CallRecord, ModelCallResult
from apps.playground.services.calls import CallExecution
from apps.playground.services.model_calls import MAX_ATTEMPTS, retry_at
from apps.providers.chat import ChatRequest, ChatUsage
from apps.providers.client import PreparedCall, prepare_call
from apps.trace_store import RunDetail
from apps.usage import quotas


@dataclass(frozen=True, slots=True)
class ClaimedEvaluation:
    """One attempt that this process has claimed."""

    id: UUID
    attempt: int
    organization_id: UUID
    number: int = 1
    """Of the attempt, since the evaluation was asked for."""
    judge: Judge | None = None
    record: CallRecord | None = None
    call: PreparedCall | None = field(default=None, repr=False)
    error: str = ""
    """Why there is no call."""
    is_skipped: bool = False
    """Whether it is no failure that there is none."""
    is_dropped: bool = False
    """Whether the rule's filters do not match the run: a later change of it may."""
    is_done: bool = False
    """Whether the rule has no judge, and the run is in its queue."""
    queue_error: str = ""
    """Why the run is not in the queue of the rule."""


def has_due() -> bool:
    return leases.has_due(is_code=False)


def claim(limit: int, excluded: Collection[UUID] = ()) -> list[ClaimedEvaluation]:
    """Lease due evaluations of organizations that are not excluded, and prepare their requests."""
    with transaction.atomic():
        ids = leases.find_due(is_code=False, limit=limit, excluded=excluded)
        claimed = leases.lease(ids)
    return [_prepare_one(row) for row in claimed]


def _prepare_one(evaluation: Evaluation) -> ClaimedEvaluation:
    claimed = ClaimedEvaluation(
        evaluation.pk,
        evaluation.attempt,
        evaluation.organization_id,
        evaluation.attempt - evaluation.earlier_attempts,
    )
    if evaluation.attempt - evaluation.earlier_attempts > MAX_ATTEMPTS:
        return replace(claimed, error=f"{MAX_ATTEMPTS} attempts were interrupted.")
    try:
        return _prepare_call(evaluation, claimed)
    except AppError as error:
        return replace(claimed, error=error.detail)


def _prepare_call(evaluation: Evaluation, claimed: ClaimedEvaluation) -> ClaimedEvaluation:
    rule = evaluation.rule
    run = traces.find_run(evaluation)
    if run is None:
        return replace(claimed, error="The run was removed.", is_skipped=True)
    if not traces.matches(rule, run):
        return replace(claimed, is_dropped=True)
    claimed = replace(claimed, queue_error=queueing.add_to_queue(evaluation, run.row))
    if rule.evaluator is None:
        if rule.annotation_queue is None:
            return replace(claimed, error=queueing.QUEUE_DELETED, is_skipped=True)
        return replace(claimed, is_done=not claimed.queue_error)
    try:
        return _prepare_judge(evaluation, rule.evaluator, claimed, run)
    except AppError as error:
        return replace(claimed, error=error.detail)


def _prepare_judge(
    evaluation: Evaluation, evaluator: Evaluator, claimed: ClaimedEvaluation, run: RunDetail
) -> ClaimedEvaluation:
    rule = evaluation.rule
    judge = resolve(evaluator)
    subject = traces.read_subject(run)
    if subject.outputs is None and needs_output(judge.mapping):
        return replace(claimed, error="The run has no output.", is_skipped=True)
    chat = judge.build_chat(subject)
    _check_price(rule, chat)
    quotas.check(evaluation.workspace_id)
    call = prepare_call(
        workspace_id=evaluation.workspace_id,
        organization_id=evaluation.organization_id,
        chat=chat,
    )
    if reason := spend.count_call(rule):
        return replace(claimed, error=reason, is_skipped=True)
    record = build_record(rule, evaluator, judge, chat, run)
    return replace(claimed, judge=judge, record=record, call=call)


def _check_price(rule: EvaluatorRule, chat: ChatRequest) -> None:
    """A limit in dollars cannot be kept without a price. Raises `BadEvaluator`."""
    if rule.weekly_limit_usd is None:
        return
    usage = ChatUsage(1, 1)
    if call_records.compute_cost(rule.workspace_id, chat.model, usage, timezone.now()) is None:
        raise BadEvaluator(
            "The price of the model is not known, so the limit in dollars cannot be kept."
        )


def build_record(
    rule: EvaluatorRule, evaluator: Evaluator, judge: Judge, chat: ChatRequest, run: RunDetail
) -> CallRecord:
    """The judge's own run, a trace of the project `evaluators`."""
    row = run.row
    metadata = {
        "evaluator_id": str(evaluator.pk),
        "rule_id": str(rule.pk),
        "target_run_id": str(row.id),
        "target_session_id": str(row.project_id),
    }
    if row.reference_example_id is not None:
        metadata["reference_example_id"] = str(row.reference_example_id)
    return CallRecord(
        workspace_id=rule.workspace_id,
        setting=judge.setting,
        chat=chat,
        started_at=timezone.now(),
        run_name=evaluator.name,
        metadata=metadata,
        project_id=traces.judges_project(rule.workspace_id).pk,
    )


async def make_call(claimed: ClaimedEvaluation) -> ModelCallResult | datetime:
    """Ask the judge; return the end, or the time at which it is to be asked again."""
    if claimed.call is None:
        return ModelCallResult(ended_at=timezone.now(), error=claimed.error)
    execution = CallExecution(claimed.call)
    try:
        async with aclosing(execution.run()) as events:
            async for _ in events:
                pass
    except AppError as error:
        due_at = retry_at(claimed.number, error)
        return execution.result(error=error.detail) if due_at is None else due_at
    return execution.result()


@transaction.atomic
def record_end(claimed: ClaimedEvaluation, result: ModelCallResult) -> bool:
    """Record the end, its feedback and the judge's run; False for an attempt without a lease."""
    row = leases.held(claimed).select_related("rule").select_for_update(of=("self",)).first()
    if row is None:
        return False
    if claimed.is_dropped:
        row.delete()
        return True
    row.ended_at, row.error = result.ended_at, result.error or ""
    if claimed.record is not None and claimed.judge is not None:
        _record_judgement(row, claimed.judge, claimed.record, result)
    elif claimed.is_done:
        row.status = EvaluationStatus.SUCCEEDED
    else:
        row.status = EvaluationStatus.SKIPPED if claimed.is_skipped else EvaluationStatus.FAILED
    if claimed.queue_error:
        row.status = EvaluationStatus.FAILED
        row.error = " ".join(filter(None, (row.error, claimed.queue_error)))
    row.save(update_fields=["status", "error", "ended_at", "judge_run_id", "scores", "cost"])
    return True


def _record_judgement(
    row: Evaluation, judge: Judge, record: CallRecord, result: ModelCallResult
) -> None:
    """Store the judge's run and, for a valid reply, the feedback."""
    row.cost = call_records.compute_cost(
        row.workspace_id, record.chat.model, result.usage, record.started_at
    )
    if row.cost is not None:
        spend.add_cost(row.rule, row.cost)
    scores: list[Score] = []
    if result.error is None and result.message is not None:
        try:
            scores = read_scores(judge.schema, result.message.text)
        except BadJudgement as error:
            row.error = error.detail
            result = replace(result, error=error.detail)
    with transaction.atomic():
        refusal = traces.store_judge_run(record, result)
    row.judge_run_id = None if refusal else record.run_id
    if not row.error:
        row.error = write_feedback(row, scores)
    row.status = EvaluationStatus.FAILED if row.error else EvaluationStatus.SUCCEEDED


class EvaluationQueue:
    """The judges' evaluations, for a `CallWorker`."""

    def claim(self, limit: int, excluded: Collection[UUID]) -> Sequence[ClaimedEvaluation]:
        return claim(limit, excluded)

    def extend(self, calls: Collection[ClaimedEvaluation]) -> set[UUID]:
        return leases.extend(calls)

    async def make(self, claimed: ClaimedEvaluation) -> ModelCallResult | datetime:
        return await make_call(claimed)

    def record_end(self, claimed: ClaimedEvaluation, result: ModelCallResult) -> bool:
        return record_end(claimed, result)

    def postpone(self, claimed: ClaimedEvaluation, due_at: datetime) -> None:
        leases.postpone(claimed, due_at)
