"""Rows of the evaluators' pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count

from apps.evaluators.judge import describe_problem
from apps.evaluators.models import (
    BackfillStatus,
    Evaluation,
    EvaluationStatus,
    EvaluatorRule,
)
from apps.evaluators.scoring import Score
from apps.evaluators.services import queueing, spend
from apps.evaluators.services.spend import Spent
from apps.playground.setting import convert

BADGES: Mapping[str, str] = {
    EvaluationStatus.PENDING: "due",
    EvaluationStatus.RUNNING: "running",
    EvaluationStatus.SUCCEEDED: "success",
    EvaluationStatus.FAILED: "failed",
    EvaluationStatus.SKIPPED: "SKIPPED",
}
"""The badge of each status."""
BACKFILL_BADGES: Mapping[str, str] = {
    BackfillStatus.RUNNING: "running",
    BackfillStatus.COMPLETED: "success",
    BackfillStatus.CANCELLED: "SKIPPED",
    BackfillStatus.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule in a list."""

    rule: EvaluatorRule
    counts: Mapping[str, int]
    """Evaluations by status."""
    spent: Spent
    """Of the current week."""
    problem: str
    """Why it cannot be applied; empty if it can."""

    @property
    def status(self) -> str:
        if not self.rule.is_enabled:
            return "disabled"
        return "failed" if self.problem else "ok"

    @property
    def finished_count(self) -> int:
        return sum(self.counts.values()) - self.open_count

    @property
    def open_count(self) -> int:
        return self.counts.get("pending", 0) + self.counts.get("running", 0)

    @property
    def failed_count(self) -> int:
        return self.counts.get("failed", 0)


def load_rows(rules: Sequence[EvaluatorRule]) -> list[RuleRow]:
    """The rules of one workspace with their counts."""
    if not rules:
        return []
    spent = spend.spent_in_week(rules)
    evaluations = Evaluation.objects.for_workspace(rules[0].workspace_id).filter(rule__in=rules)
    counts: dict[UUID, dict[str, int]] = {rule.pk: {} for rule in rules}
    for row in evaluations.order_by().values("rule_id", "status").annotate(count=Count("pk")):
        counts[row["rule_id"]][row["status"]] = row["count"]
    return [
        RuleRow(rule, counts[rule.pk], spent[rule.pk], _describe_problem(rule)) for rule in rules
    ]


def _describe_problem(rule: EvaluatorRule) -> str:
    if rule.evaluator is not None:
        problem = describe_problem(rule.evaluator)
        return f"The judge cannot run: {problem}" if problem else ""
    return "" if rule.annotation_queue_id is not None else queueing.QUEUE_DELETED


@dataclass(frozen=True, slots=True)
class LogRow:
    """The evaluation of one run."""

    evaluation: Evaluation

    @property
    def badge(self) -> str:
        return BADGES[self.evaluation.status]

    @property
    def problem(self) -> str:
        """The error; of a traceback its last line."""
        return self.evaluation.error.strip().rpartition("\n")[2]

    @property
    def traceback(self) -> str:
        """Empty if the error is one line."""
        error = self.evaluation.error.strip()
        return error if "\n" in error else ""

    @property
    def scores(self) -> list[Score]:
        return [convert(item, Score) for item in self.evaluation.scores or ()]
