"""Claims evaluations of one kind with leases, in turns of organizations, and returns them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from apps.core.connections import raw_cursor
from apps.evaluators.models import Evaluation, EvaluationStatus, EvaluatorRule
from apps.evaluators.querysets import EvaluationQuerySet
from apps.playground.services.model_calls import LEASE_SECONDS


class Attempt(Protocol):
    """One attempt that this process has claimed."""

    @property
    def id(self) -> UUID: ...
    @property
    def attempt(self) -> int:
        """The fencing token: the result of a stale attempt is discarded."""


def all_evaluations() -> EvaluationQuerySet:
    return Evaluation.objects.across_workspaces(
        reason="a worker makes the evaluations of all workspaces"
    )


def has_due(*, is_code: bool) -> bool:
    due = all_evaluations().unfinished().filter(due_at__lte=timezone.now())
    return due.filter(is_code=is_code).exists()


_DUE = """
WITH RECURSIVE organizations AS (
  (SELECT organization_id FROM evaluators_evaluation
   WHERE status IN ('pending', 'running') AND is_code = %(is_code)s
   ORDER BY organization_id LIMIT 1)
  UNION ALL
  SELECT (SELECT e.organization_id FROM evaluators_evaluation e
          WHERE e.status IN ('pending', 'running') AND e.is_code = %(is_code)s
            AND e.organization_id > o.organization_id
          ORDER BY e.organization_id LIMIT 1)
  FROM organizations o WHERE o.organization_id IS NOT NULL
)
SELECT due.id FROM organizations o CROSS JOIN LATERAL (
  SELECT e.id, e.due_at, row_number() OVER (ORDER BY e.due_at) AS turn
  FROM evaluators_evaluation e
  WHERE e.status IN ('pending', 'running') AND e.is_code = %(is_code)s
    AND e.organization_id = o.organization_id AND e.due_at <= %(now)s
  ORDER BY e.due_at LIMIT %(limit)s
) due
WHERE o.organization_id IS NOT NULL AND NOT o.organization_id = ANY(%(excluded)s)
ORDER BY due.turn, due.due_at LIMIT %(limit)s
"""
"""The due evaluations, the oldest of each organization first, then the second of each, ..."""


def find_due(*, is_code: bool, limit: int, excluded: Collection[UUID]) -> list[UUID]:
    """Return ids of due evaluations of organizations that are not excluded."""
    with raw_cursor() as cursor:
        cursor.execute(
            _DUE,
            {
                "is_code": is_code,
                "now": timezone.now(),
                "limit": limit,
                "excluded": list(excluded),
            },
        )
        return [row[0] for row in cursor]


def lease(ids: Collection[UUID]) -> list[Evaluation]:
    """Lease those of the due evaluations that no other process takes, with their rules.

    In a transaction of the caller's.
    """
    now = timezone.now()
    rows = all_evaluations().unfinished().filter(pk__in=ids, due_at__lte=now)
    rows = rows.order_by("due_at", "pk")
    claimed = list(rows.select_for_update(skip_locked=True, of=("self",)))
    for row in claimed:
        row.status, row.attempt = EvaluationStatus.RUNNING, row.attempt + 1
        row.due_at, row.started_at = now + timedelta(seconds=LEASE_SECONDS), now
    all_evaluations().bulk_update(claimed, ["status", "attempt", "due_at", "started_at"])
    return _with_rules(claimed)


def _with_rules(evaluations: list[Evaluation]) -> list[Evaluation]:
    rules = EvaluatorRule.objects.across_workspaces(reason="the rules of these evaluations")
    rules = rules.select_related(
        "evaluator__prompt", "evaluator__saved_settings", "annotation_queue"
    )
    by_id = rules.in_bulk({row.rule_id for row in evaluations})
    present = []
    for evaluation in evaluations:
        rule = by_id.get(evaluation.rule_id)
        if rule is None:  # it was deleted, with its evaluations
            continue
        evaluation.rule = rule
        if evaluation.is_code == rule.is_code:
            present.append(evaluation)
        else:  # the rule got another evaluator meanwhile
            release(evaluation, is_code=rule.is_code)
    return present


def held(claimed: Attempt | Evaluation) -> EvaluationQuerySet:
    """The evaluation, if this attempt still has its lease."""
    return all_evaluations().filter(
        pk=claimed.id, attempt=claimed.attempt, status=EvaluationStatus.RUNNING
    )


def extend(claimed: Iterable[Attempt]) -> set[UUID]:
    """Extend the leases of the attempts; return the ids that this process still holds."""
    due_at = timezone.now() + timedelta(seconds=LEASE_SECONDS)
    condition = Q(pk__in=[])
    for item in claimed:
        condition |= Q(pk=item.id, attempt=item.attempt, status=EvaluationStatus.RUNNING)
    with transaction.atomic():
        rows = all_evaluations().filter(condition).order_by("pk")
        ids = set(rows.select_for_update().values_list("pk", flat=True))
        all_evaluations().filter(pk__in=ids).update(due_at=due_at)
    return ids


def postpone(claimed: Attempt, due_at: datetime) -> None:
    """Make the evaluation again at this time."""
    held(claimed).update(status=EvaluationStatus.PENDING, due_at=due_at)


def release(claimed: Attempt | Evaluation, *, is_code: bool) -> int:
    """Let any process make the evaluation, as if it had not been claimed; return 0 if it was lost.

    `is_code` is the kind of its evaluator.
    """
    return held(claimed).update(
        status=EvaluationStatus.PENDING,
        due_at=timezone.now(),
        earlier_attempts=F("earlier_attempts") + 1,
        is_code=is_code,
    )
