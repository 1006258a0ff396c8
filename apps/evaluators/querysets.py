"""Chainable queries of evaluators, rules and evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q

if TYPE_CHECKING:
    from apps.evaluators.models import (  # noqa: F401
        CodeTrial,
        Evaluation,
        Evaluator,
        EvaluatorRule,
        EvaluatorSpend,
        RuleBackfill,
    )


class EvaluatorQuerySet(models.QuerySet["Evaluator"]):
    def newest_first(self) -> EvaluatorQuerySet:
        return self.order_by("-created_at", "-pk")


class EvaluatorRuleQuerySet(models.QuerySet["EvaluatorRule"]):
    def with_present_scope(self) -> EvaluatorRuleQuerySet:
        """Rules whose project or dataset is not deleted."""
        return self.filter(
            Q(project=None) | Q(project__deleted_at=None),
            Q(dataset=None) | Q(dataset__deleted_at=None),
        )

    def with_actions(self) -> EvaluatorRuleQuerySet:
        """Rules that do something: one that only had a queue does nothing once that is deleted."""
        return self.filter(Q(evaluator__isnull=False) | Q(annotation_queue__isnull=False))

    def newest_first(self) -> EvaluatorRuleQuerySet:
        return self.order_by("-created_at", "-pk")


class EvaluationQuerySet(models.QuerySet["Evaluation"]):
    def unfinished(self) -> EvaluationQuerySet:
        return self.filter(status__in=["pending", "running"])

    def newest_first(self) -> EvaluationQuerySet:
        return self.order_by("-created_at", "-pk")


class EvaluatorSpendQuerySet(models.QuerySet["EvaluatorSpend"]):
    pass


class RuleBackfillQuerySet(models.QuerySet["RuleBackfill"]):
    def running(self) -> RuleBackfillQuerySet:
        return self.filter(status="running")


class CodeTrialQuerySet(models.QuerySet["CodeTrial"]):
    def waiting(self) -> CodeTrialQuerySet:
        return self.filter(started_at=None, ended_at=None)
