"""Claims, extends and records evaluations, for the workers that make the judges' calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import msgspec
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.core.connections import raw_cursor
from apps.core.errors import AppError
from apps.evaluators.errors import BadEvaluator, BadJudgement
from apps.evaluators.judge import Judge, resolve
from apps.evaluators.models import Evaluation, EvaluationStatus, EvaluatorRule
from apps.evaluators.querysets import EvaluationQuerySet
from apps.evaluators.scoring import Score, read_scores
from apps.evaluators.services import spend, traces
from apps.evaluators.variables import needs_output
from apps.feedback.models import Feedback
from apps.feedback.services import attach_to_runs
from apps.feedback.services.feedback import delete_feedback, store_feedback
from apps.feedback.wire import WireFeedback
from apps.playground.services import call_records
from apps.playground.services.call_records import CallRecord, ModelCallResult
from apps.playground.services.calls import CallExecution
from apps.playground.services.model_calls import LEASE_SECONDS, MAX_ATTEMPTS, retry_at
from apps.providers.chat import ChatRequest, ChatUsage
from apps.providers.client import PreparedCall, prepare_call
from apps.trace_store import RunDetail, RunQuery, filters, run_store
from apps.usage import quotas


@dataclass(frozen=True, slots=True)
class ClaimedEvaluation:
    """One attempt that this process has claimed."""

    id: UUID
    attempt: int
    """The fencing token: the result of a stale attempt is discarded."""
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


def _all_evaluations() -> EvaluationQuerySet:
    return Evaluation.objects.across_workspaces(
        reason="a worker makes the evaluations of all workspaces"
    )


def has_due() -> bool:
    return _all_evaluations().unfinished().filter(due_at__lte=timezone.now()).exists()


_DUE = """
WITH RECURSIVE organizations AS (
  (SELECT organization_id FROM evaluators_evaluation
   WHERE status IN ('pending', 'running') ORDER BY organization_id LIMIT 1)
  UNION ALL
  SELECT (SELECT e.organization_id FROM evaluators_evaluation e
          WHERE e.status IN ('pending', 'running') AND e.organization_id > o.organization_id
          ORDER BY e.organization_id LIMIT 1)
  FROM organizations o WHERE o.organization_id IS NOT NULL
)
SELECT due.id FROM organizations o CROSS JOIN LATERAL (
  SELECT e.id, e.due_at, row_number() OVER (ORDER BY e.due_at) AS turn
  FROM evaluators_evaluation e
  WHERE e.status IN ('pending', 'running') AND e.organization_id = o.organization_id
    AND e.due_at <= %(now)s
  ORDER BY e.due_at LIMIT %(limit)s
) due
WHERE o.organization_id IS NOT NULL AND NOT o.organization_id = ANY(%(excluded)s)
ORDER BY due.turn, due.due_at LIMIT %(limit)s
"""
"""The due evaluations, the oldest of each organization first, then the second of each, ..."""


def claim(limit: int, excluded: Collection[UUID] = ()) -> list[ClaimedEvaluation]:
    """Lease due evaluations of organizations that are not excluded, and prepare their requests."""
    now = timezone.now()
    with transaction.atomic():
        with raw_cursor() as cursor:
            cursor.execute(_DUE, {"now": now, "limit": limit, "excluded": list(excluded)})
            ids = [row[0] for row in cursor]
        rows = _all_evaluations().unfinished().filter(pk__in=ids, due_at__lte=now)
        claimed = list(rows.order_by("due_at").select_for_update(skip_locked=True, of=("self",)))
        for row in claimed:
            row.status, row.attempt = EvaluationStatus.RUNNING, row.attempt + 1
            row.due_at, row.started_at = now + timedelta(seconds=LEASE_SECONDS), now
        _all_evaluations().bulk_update(claimed, ["status", "attempt", "due_at", "started_at"])
    return _prepare(claimed)


def _prepare(evaluations: Sequence[Evaluation]) -> list[ClaimedEvaluation]:
    rules = EvaluatorRule.objects.across_workspaces(reason="the rules of these evaluations")
    rules = rules.select_related("evaluator__prompt", "evaluator__saved_settings")
    by_id = rules.in_bulk({row.rule_id for row in evaluations})
    prepared = []
    for evaluation in evaluations:
        rule = by_id.get(evaluation.rule_id)
        if rule is not None:  # else it was deleted, with its evaluations
            evaluation.rule = rule
            prepared.append(_prepare_one(evaluation))
    return prepared


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
    if not matches(rule, run):
        return replace(claimed, is_dropped=True)
    judge = resolve(rule.evaluator)
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
    record = build_record(rule, judge, chat, run)
    return replace(claimed, judge=judge, record=record, call=call)


def matches(rule: EvaluatorRule, run: RunDetail) -> bool:
    """Whether the filters of the rule match the run and its trace."""
    if not (rule.filter or rule.trace_filter or rule.tree_filter):
        return True
    query = RunQuery(
        project_ids=[run.row.project_id],
        run_ids=[run.row.id],
        is_root=True,
        where=_parse(rule.filter),
        where_root=_parse(rule.trace_filter),
        where_any=_parse(rule.tree_filter),
    )
    return bool(run_store.query(run.row.workspace_id, query, limit=1).runs)


def _parse(text: str) -> filters.Expression | None:
    return filters.parse(text) if text else None


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
    rule: EvaluatorRule, judge: Judge, chat: ChatRequest, run: RunDetail
) -> CallRecord:
    """The judge's own run, a trace of the project `evaluators`."""
    row, evaluator = run.row, rule.evaluator
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


def extend(attempts: dict[UUID, int]) -> set[UUID]:
    """Extend the leases of the attempts; return the ids that this process still holds."""
    due_at = timezone.now() + timedelta(seconds=LEASE_SECONDS)
    held = Q(pk__in=[])
    for evaluation_id, attempt in attempts.items():
        held |= Q(pk=evaluation_id, attempt=attempt, status=EvaluationStatus.RUNNING)
    with transaction.atomic():
        rows = _all_evaluations().filter(held).order_by("pk")
        ids = set(rows.select_for_update().values_list("pk", flat=True))
        _all_evaluations().filter(pk__in=ids).update(due_at=due_at)
    return ids


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
def postpone(claimed: ClaimedEvaluation, due_at: datetime) -> None:
    """Ask the judge again at this time."""
    _held(claimed).update(status=EvaluationStatus.PENDING, due_at=due_at)


@transaction.atomic
def record_end(claimed: ClaimedEvaluation, result: ModelCallResult) -> bool:
    """Record the end, its feedback and the judge's run; False for an attempt without a lease."""
    row = _held(claimed).select_related("rule").select_for_update(of=("self",)).first()
    if row is None:
        return False
    if claimed.is_dropped:
        row.delete()
        return True
    row.ended_at, row.error = result.ended_at, result.error or ""
    if claimed.record is None or claimed.judge is None:
        row.status = EvaluationStatus.SKIPPED if claimed.is_skipped else EvaluationStatus.FAILED
    else:
        _record_judgement(row, claimed.judge, claimed.record, result)
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
        row.error = _write_feedback(row, scores)
    row.status = EvaluationStatus.FAILED if row.error else EvaluationStatus.SUCCEEDED


def _write_feedback(row: Evaluation, scores: Sequence[Score]) -> str:
    """Write the scores in place of those of an earlier evaluation; return why not, or ''."""
    previous = {item["key"] for item in row.scores or ()}
    try:
        with transaction.atomic():
            items = [_build_feedback(row, score) for score in scores]
            if rejected := store_feedback(row.workspace_id, items):
                raise rejected[0].error
            attach_to_runs.attach(row.workspace_id, [row.run_id])
            _delete_feedback(row, previous - {score.key for score in scores})
    except AppError as error:
        return f"The feedback was refused: {error.detail}"
    row.scores = [msgspec.to_builtins(score) for score in scores]
    return ""


def _build_feedback(row: Evaluation, score: Score) -> WireFeedback:
    metadata: dict[str, Any] = {
        "rule_id": str(row.rule_id),
        "evaluator_id": str(row.rule.evaluator_id),
    }
    if row.judge_run_id is not None:
        metadata["__run"] = {"run_id": str(row.judge_run_id)}
    return WireFeedback(
        id=_feedback_id(row, score.key),
        key=score.key,
        run_id=row.run_id,
        session_id=row.project_id,
        score=score.score,
        value=score.value,
        comment=score.comment,
        feedback_source={"type": "model", "metadata": metadata},
    )


def _feedback_id(row: Evaluation, key: str) -> UUID:
    """The same id for each evaluation of the run by the rule: a later one replaces the feedback."""
    return uuid5(row.pk, key)


def _delete_feedback(row: Evaluation, keys: Collection[str]) -> None:
    rows = Feedback.objects.for_workspace(row.workspace_id)
    for feedback in rows.filter(pk__in=[_feedback_id(row, key) for key in keys]):
        delete_feedback(feedback)


def _held(claimed: ClaimedEvaluation) -> EvaluationQuerySet:
    return _all_evaluations().filter(
        pk=claimed.id, attempt=claimed.attempt, status=EvaluationStatus.RUNNING
    )


class EvaluationQueue:
    """The evaluations of rules, for a `CallWorker`."""

    def claim(self, limit: int, excluded: Collection[UUID]) -> Sequence[ClaimedEvaluation]:
        return claim(limit, excluded)

    def extend(self, attempts: dict[UUID, int]) -> set[UUID]:
        return extend(attempts)

    async def make(self, claimed: ClaimedEvaluation) -> ModelCallResult | datetime:
        return await make_call(claimed)

    def record_end(self, claimed: ClaimedEvaluation, result: ModelCallResult) -> bool:
        return record_end(claimed, result)

    def postpone(self, claimed: ClaimedEvaluation, due_at: datetime) -> None:
        postpone(claimed, due_at)
