"""Claims and records the evaluations of functions, in batches of one rule."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core.errors import AppError
from apps.evaluators.code.process import CodeReply
from apps.evaluators.code.results import read_result
from apps.evaluators.code.subjects import PAYLOADS, build_subject
from apps.evaluators.models import Evaluation, EvaluationStatus, Evaluator
from apps.evaluators.scoring import MAX_KEYS
from apps.evaluators.services import code_runs, leases, queueing, spend, traces
from apps.evaluators.services.scores import write_feedback
from apps.playground.services.model_calls import MAX_ATTEMPTS

log = logging.getLogger(__name__)

MAX_BATCH = 50
MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Of runs and examples, which wait in the worker's memory."""
_LOOK_AHEAD = 500
"""Due evaluations of an organization among which those of one rule are looked for."""


@dataclass(frozen=True, slots=True)
class CodeEvaluation:
    """One attempt that this process has claimed."""

    id: UUID
    attempt: int
    subject: bytes = field(repr=False)
    queue_error: str = ""
    """Why the run is not in the queue of the rule."""


@dataclass(frozen=True, slots=True)
class EvaluationBatch:
    """Evaluations of one rule, and so of one organization and one function."""

    id: UUID
    """Of its first evaluation."""
    attempt: int
    organization_id: UUID
    code: str = field(repr=False)
    uid: int | None
    evaluations: Sequence[CodeEvaluation]

    @property
    def subjects(self) -> list[bytes]:
        return [item.subject for item in self.evaluations]


def claim(limit: int, excluded: Collection[UUID] = ()) -> list[EvaluationBatch]:
    """Lease batches of due evaluations of organizations that are not excluded.

    Evaluations that need no call of their function are recorded at once.
    """
    batches = []
    for organization_id, rule_id in _find_batches(limit, excluded):
        with transaction.atomic():
            claimed = leases.lease(_find_members(organization_id, rule_id))
        evaluations = _prepare(claimed)
        if evaluations and (evaluator := claimed[0].rule.evaluator) is not None:
            first = evaluations[0]
            batches.append(
                EvaluationBatch(
                    first.id,
                    first.attempt,
                    organization_id,
                    evaluator.code,
                    code_runs.find_uid(organization_id),
                    evaluations,
                )
            )
    return batches


def _find_batches(limit: int, excluded: Collection[UUID]) -> list[tuple[UUID, UUID]]:
    """Return organization and rule of due evaluations, the oldest of each organization first."""
    ids = leases.find_due(is_code=True, limit=limit, excluded=excluded)
    rows = leases.all_evaluations().filter(pk__in=ids)
    by_id = {row[0]: row[1:] for row in rows.values_list("pk", "organization_id", "rule_id")}
    return list(dict.fromkeys(by_id[key] for key in ids if key in by_id))


def _find_members(organization_id: UUID, rule_id: UUID) -> list[UUID]:
    due = leases.all_evaluations().unfinished().filter(is_code=True, due_at__lte=timezone.now())
    oldest = due.filter(organization_id=organization_id).order_by("due_at")
    pairs = oldest.values_list("pk", "rule_id")[:_LOOK_AHEAD]
    return [pk for pk, of_rule in pairs if of_rule == rule_id][:MAX_BATCH]


def _prepare(claimed: Sequence[Evaluation]) -> list[CodeEvaluation]:
    prepared: list[CodeEvaluation] = []
    size = 0
    for row in claimed:
        if size > MAX_BATCH_BYTES:
            leases.release(row, is_code=True)
            continue
        try:
            evaluation = _prepare_one(row)
        except _NoCall as reason:
            _finish(row, reason)
        except AppError as error:
            _finish(row, _NoCall(error.detail, EvaluationStatus.FAILED))
        else:
            size += len(evaluation.subject)
            prepared.append(evaluation)
    return prepared


class _NoCall(Exception):
    """The function is not called, and the evaluation has ended; without a status it is dropped."""

    def __init__(self, error: str, status: EvaluationStatus | None) -> None:
        super().__init__(error)
        self.status = status


def _prepare_one(row: Evaluation) -> CodeEvaluation:
    """Read what the function sees. Raises `_NoCall` and `BadEvaluator`."""
    if row.attempt - row.earlier_attempts > MAX_ATTEMPTS:
        raise _NoCall(f"{MAX_ATTEMPTS} attempts were interrupted.", EvaluationStatus.FAILED)
    run = traces.find_run(row, PAYLOADS)
    if run is None:
        raise _NoCall("The run was removed.", EvaluationStatus.SKIPPED)
    if not traces.matches(row.rule, run):
        raise _NoCall("The filters of the rule do not match.", None)
    queue_error = queueing.add_to_queue(row, run.row)
    subject = build_subject(run, traces.find_example(run))
    if reason := spend.count_call(row.rule):
        if queue_error:
            raise _NoCall(f"{reason} {queue_error}", EvaluationStatus.FAILED)
        raise _NoCall(reason, EvaluationStatus.SKIPPED)
    return CodeEvaluation(row.pk, row.attempt, subject, queue_error)


def _finish(row: Evaluation, reason: _NoCall) -> None:
    if reason.status is None:  # a later change of the run may match
        leases.held(row).delete()
        return
    leases.held(row).update(status=reason.status, error=str(reason), ended_at=timezone.now())


def record_end(batch: EvaluationBatch, replies: Sequence[CodeReply | None]) -> None:
    """Record the replies, each in a transaction of its own."""
    for item, reply in zip(batch.evaluations, replies, strict=True):
        try:
            with transaction.atomic():
                _record(item, reply)
        except Exception:
            # The others are recorded; this one is repeated after its lease.
            log.exception("The evaluation %s could not be recorded.", item.id)


def _record(item: CodeEvaluation, reply: CodeReply | None) -> None:
    rows = leases.held(item).select_related("rule__evaluator")
    row = rows.select_for_update(of=("self",)).first()
    if row is None:
        return
    if reply is None:
        leases.release(item, is_code=True)
        spend.return_call(row.rule)
        return
    evaluator = row.rule.evaluator
    assert evaluator is not None  # noqa: S101  (evaluations without one are not of this kind)
    row.ended_at, row.error = timezone.now(), reply.error
    if not reply.error:
        try:
            scores = read_result(reply.result, evaluator.name)
        except AppError as error:
            row.error = error.detail
        else:
            row.error = write_feedback(row, scores)
    if not row.error:
        _remember_keys(evaluator, [item["key"] for item in row.scores or ()])
    row.error = " ".join(filter(None, (row.error, item.queue_error)))
    row.status = EvaluationStatus.FAILED if row.error else EvaluationStatus.SUCCEEDED
    row.save(update_fields=["status", "error", "ended_at", "scores"])


def _remember_keys(evaluator: Evaluator, keys: Sequence[str]) -> None:
    known = list(dict.fromkeys([*evaluator.feedback_keys, *keys]))[:MAX_KEYS]
    if known != evaluator.feedback_keys:
        rows = Evaluator.objects.for_workspace(evaluator.workspace_id).filter(pk=evaluator.pk)
        rows.update(feedback_keys=known)


def postpone(batch: EvaluationBatch, due_at: datetime) -> None:
    """Make the evaluations again at this time."""
    for item in batch.evaluations:
        row = leases.held(item).select_related("rule").first()
        if row is not None:
            leases.postpone(item, due_at)
            spend.return_call(row.rule)
