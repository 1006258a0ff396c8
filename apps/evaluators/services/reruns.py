"""Evaluates experiments again, and counts the evaluations of experiments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from apps.core.errors import NotFound
from apps.evaluators import dispatch, errors
from apps.evaluators.models import Evaluation, EvaluationStatus, EvaluatorRule
from apps.evaluators.querysets import EvaluationQuerySet
from apps.evaluators.services import selection
from apps.evaluators.services.rules import rules_of
from apps.evaluators.services.selection import EvaluatedRun
from apps.trace_store import RunQuery, run_store
from apps.tracing.models import Project
from apps.tracing.services import get_project

_FINISHED = (EvaluationStatus.SUCCEEDED, EvaluationStatus.FAILED, EvaluationStatus.SKIPPED)
_BATCH_SIZE = 1000


@dataclass(frozen=True, slots=True)
class RuleProgress:
    """The evaluations of an experiment by one rule."""

    rule_id: UUID
    name: str
    finished_count: int
    open_count: int
    failed_count: int


@transaction.atomic
def evaluate_experiment(
    *,
    workspace_id: UUID,
    experiment_id: UUID,
    rule_ids: Collection[UUID] | None = None,
    only_failed: bool = False,
    with_disabled: bool = False,
) -> int:
    """Apply rules of the dataset again to the rows of an experiment; return their evaluations.

    Without `rule_ids` these are the enabled rules, or all. A new result replaces the feedback of
    the last. Raises `NotFound` for a project that is no experiment, and `EvaluatorRuleNotFound`.
    """
    experiment = get_project(workspace_id, experiment_id)
    if experiment.reference_dataset_id is None:
        raise NotFound
    rules = _find_rules(experiment, rule_ids, with_disabled=with_disabled)
    earlier = _evaluations_of(experiment).filter(rule__in=rules)
    statuses = [EvaluationStatus.FAILED] if only_failed else _FINISHED
    count = _repeat(earlier.filter(status__in=statuses))
    if not only_failed:
        count += _add_missing(experiment, rules, earlier)
    dispatch.evaluate()
    return count


def _find_rules(
    experiment: Project, rule_ids: Collection[UUID] | None, *, with_disabled: bool
) -> Sequence[EvaluatorRule]:
    rows = rules_of(experiment.workspace_id).filter(dataset=experiment.reference_dataset_id)
    if rule_ids is None:
        return list(rows if with_disabled else rows.filter(is_enabled=True))
    rules = list(rows.filter(pk__in=rule_ids))
    if len(rules) < len(set(rule_ids)):
        raise errors.EvaluatorRuleNotFound
    return rules


def _add_missing(
    experiment: Project, rules: Sequence[EvaluatorRule], earlier: EvaluationQuerySet
) -> int:
    """Enqueue the evaluations of rows that the rules have not evaluated yet."""
    query = RunQuery(project_ids=[experiment.pk], is_root=True)
    runs = run_store.list_experiment_runs(experiment.workspace_id, query)
    known = set(earlier.values_list("rule_id", "run_id"))
    pairs = [
        (rule, EvaluatedRun(run.run_id, run.project_id, run.example_id))
        for rule in rules
        for run in runs
        if (rule.pk, run.run_id) not in known
    ]
    for first in range(0, len(pairs), _BATCH_SIZE):
        selection.enqueue(
            experiment.workspace_id, pairs[first : first + _BATCH_SIZE], due_at=timezone.now()
        )
    return len(pairs)


def _repeat(evaluations: EvaluationQuerySet) -> int:
    return evaluations.update(
        status=EvaluationStatus.PENDING,
        earlier_attempts=F("attempt"),
        due_at=timezone.now(),
        ended_at=None,
        error="",
    )


@transaction.atomic
def retry_failed(*, rule: EvaluatorRule) -> int:
    """Repeat the failed evaluations of a rule; return their number."""
    rows = Evaluation.objects.for_workspace(rule.workspace_id).filter(rule=rule)
    count = _repeat(rows.filter(status=EvaluationStatus.FAILED))
    dispatch.evaluate()
    return count


def _evaluations_of(experiment: Project) -> EvaluationQuerySet:
    rows = Evaluation.objects.for_workspace(experiment.workspace_id)
    return rows.filter(project_id=experiment.pk)


def count_by_rule(workspace_id: UUID, project_ids: Collection[UUID]) -> list[RuleProgress]:
    """Return the evaluations of these experiments by rule, those with failures first."""
    rows = Evaluation.objects.for_workspace(workspace_id).filter(project_id__in=project_ids)
    counts = rows.values("rule_id", "rule__name").annotate(
        finished=Count("pk", filter=Q(status__in=_FINISHED)),
        open=Count("pk", filter=~Q(status__in=_FINISHED)),
        failed=Count("pk", filter=Q(status=EvaluationStatus.FAILED)),
    )
    return [
        RuleProgress(row["rule_id"], row["rule__name"], row["finished"], row["open"], row["failed"])
        for row in counts.order_by("-failed", "rule__name", "rule_id")
    ]
