"""Creates, changes, triggers and deletes the rules that bind evaluators to runs."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from django.db import transaction
from django.utils import timezone

from apps.annotation.services.queues import get_queue
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.callers import Caller
from apps.datasets.models import Dataset
from apps.datasets.services.datasets import get_dataset
from apps.evaluators import dispatch, errors
from apps.evaluators.errors import BadEvaluatorRule
from apps.evaluators.models import Evaluation, Evaluator, EvaluatorRule, EvaluatorType
from apps.evaluators.querysets import EvaluatorRuleQuerySet
from apps.evaluators.services import backfills, evaluators
from apps.evaluators.services.traces import PROJECT_NAME
from apps.evaluators.wire import RuleBody, RuleChanges, SpendLimitBody
from apps.experiment_jobs.evaluator_choice import EvaluatorChoice
from apps.organizations.permissions import Permission
from apps.trace_store import filters
from apps.tracing.services import get_project

T = TypeVar("T")
MAX_RULES = 500
"""Rules of a workspace."""
MAX_NAME_LENGTH = 200
MAX_FILTER_LENGTH = 8000
DEFAULT_CALLS_PER_DAY = 10_000
MAX_CALLS_PER_DAY = 1_000_000
MAX_LIMIT_USD = Decimal(10_000_000)
CREATE_PERMISSIONS = (Permission.RUNS_READ, Permission.FEEDBACK_WRITE)
"""Required next to `evaluators:write`: a rule reads runs and writes feedback by itself."""
_FILTERS = ("filter", "trace_filter", "tree_filter")


def rules_of(workspace_id: UUID) -> EvaluatorRuleQuerySet:
    """The rules with what their JSON needs."""
    rows = EvaluatorRule.objects.for_workspace(workspace_id).with_present_scope()
    return rows.select_related(
        "dataset",
        "project",
        "annotation_queue",
        "evaluator__prompt",
        "evaluator__saved_settings",
    )


def get_rule(workspace_id: UUID, rule_id: UUID) -> EvaluatorRule:
    """Raises `EvaluatorRuleNotFound`."""
    rule = rules_of(workspace_id).filter(pk=rule_id).first()
    if rule is None:
        raise errors.EvaluatorRuleNotFound
    return rule


def list_choices(dataset: Dataset) -> list[EvaluatorChoice]:
    """The enabled rules of a dataset, for the experiments that choose from them."""
    rows = EvaluatorRule.objects.for_workspace(dataset.workspace_id)
    rows = rows.filter(dataset=dataset, is_enabled=True).newest_first()
    return [EvaluatorChoice(rule_id, name) for rule_id, name in rows.values_list("pk", "name")]


@transaction.atomic
def create_rule(*, caller: Caller, body: RuleBody) -> EvaluatorRule:
    """Create a rule, its evaluator unless it names one, and its backfill if it asks for one.

    Raises `BadEvaluatorRule`, `BadEvaluator`, `TooManyEvaluators`, `EvaluatorNotFound`,
    `FilterError`, `Forbidden`, and `NotFound` for a foreign project, dataset or queue.
    """
    rule = build_rule(caller, body)
    evaluators.lock_evaluators(caller.workspace_id)
    if EvaluatorRule.objects.for_workspace(caller.workspace_id).count() >= MAX_RULES:
        raise errors.TooManyEvaluators(f"A workspace has at most {MAX_RULES} rules.")
    if body.evaluator_id is None and rule.evaluator is not None:
        evaluators.save_new(rule.evaluator)
    rule.save(force_insert=True)
    _record(Action.EVALUATOR_RULE_CREATED, rule, after=_audit_values(rule))
    if body.backfill_from is not None:
        backfills.start(caller=caller, rule=rule, started_from=body.backfill_from)
    return rule


def build_rule(caller: Caller, body: RuleBody) -> EvaluatorRule:
    """Return a checked rule with its evaluator, both unsaved unless the body names an evaluator.

    Raises as `create_rule`.
    """
    rule = EvaluatorRule(
        workspace_id=caller.workspace_id,
        name=body.display_name,
        is_enabled=body.is_enabled,
        sampling_rate=body.sampling_rate,
        max_calls_per_day=_calls_per_day(body.max_calls_per_day),
        weekly_limit_usd=_limit_usd(body.spend_limit),
        created_by_id=caller.user_id,
        **{name: getattr(body, name) or "" for name in _FILTERS},
    )
    _set_scope(caller, rule, body)
    _set_queue(caller, rule, body.add_to_annotation_queue_id)
    rule.extends_queue_retention = bool(body.extend_annotation_queue_trace_retention)
    _check(rule)
    given = (body.evaluator_id is not None, bool(body.evaluators), bool(body.code_evaluators))
    if sum(given) > 1 or (not any(given) and rule.annotation_queue is None):
        raise BadEvaluatorRule(
            "A rule has either `evaluators`, `code_evaluators` or an `evaluator_id`, or it has"
            " none of them and an `add_to_annotation_queue_id`."
        )
    if body.evaluator_id is not None:
        rule.evaluator = evaluators.get_evaluator(caller.workspace_id, body.evaluator_id)
    elif any(given):
        rule.evaluator = evaluators.new_evaluator(caller, body.display_name)
        rule.evaluator.is_part_of_rule = True
        if body.code_evaluators:
            rule.evaluator.type = EvaluatorType.CODE
        _apply_evaluator(caller, rule.evaluator, body)
    _check_limit(rule)
    return rule


def _set_queue(caller: Caller, rule: EvaluatorRule, queue_id: UUID | None) -> None:
    """Raises `Forbidden` and `QueueNotFound`."""
    if queue_id is None:
        rule.annotation_queue = None
        return
    caller.require(Permission.ANNOTATION_QUEUES_WRITE)
    rule.annotation_queue = get_queue(caller.workspace_id, queue_id)


def _set_scope(caller: Caller, rule: EvaluatorRule, body: RuleBody) -> None:
    if (body.dataset_id is None) == (body.session_id is None):
        raise BadEvaluatorRule("A rule has either a `session_id` or a `dataset_id`.")
    if body.dataset_id is not None:
        caller.require(Permission.DATASETS_READ)
        rule.dataset = get_dataset(caller.workspace_id, body.dataset_id)
        return
    assert body.session_id is not None  # noqa: S101
    rule.project = get_project(caller.workspace_id, body.session_id)
    if rule.project.name == PROJECT_NAME:
        raise BadEvaluatorRule(f"The runs of evaluators, in `{PROJECT_NAME}`, are not evaluated.")
    if rule.project.reference_dataset_id is not None:
        raise BadEvaluatorRule("The project is an experiment: bind the rule to its dataset.")


def _apply_evaluator(caller: Caller, evaluator: Evaluator, body: RuleBody | RuleChanges) -> None:
    """Set the judge or the function of an evaluator that is a part of its rule."""
    if evaluator.is_code:
        if body.evaluators:
            raise BadEvaluatorRule("`evaluators`: the rule has a function; create another rule.")
        function = _only_one(body.code_evaluators or [], "code_evaluators")
        evaluators.apply_code(evaluator, function)
        return
    if body.code_evaluators:
        raise BadEvaluatorRule("`code_evaluators`: the rule has a judge; create another rule.")
    structured = _only_one(body.evaluators or [], "evaluators").structured
    evaluators.apply_structured(caller, evaluator, structured)


def _only_one(items: list[T], name: str) -> T:
    if len(items) != 1:
        raise BadEvaluatorRule(f"`{name}`: a rule has one; create a rule for each.")
    return items[0]


def _check_limit(rule: EvaluatorRule) -> None:
    if rule.weekly_limit_usd is None:
        return
    if rule.evaluator is None:
        raise BadEvaluatorRule("`spend_limit`: a rule without a judge costs nothing.")
    if rule.is_code:
        raise BadEvaluatorRule("`spend_limit`: a function costs nothing.")


def _calls_per_day(count: int | None) -> int:
    if count is None:
        return DEFAULT_CALLS_PER_DAY
    if not 1 <= count <= MAX_CALLS_PER_DAY:
        raise BadEvaluatorRule(f"`max_calls_per_day` must be from 1 to {MAX_CALLS_PER_DAY}.")
    return count


def _limit_usd(body: SpendLimitBody | None) -> Decimal | None:
    if body is None:
        return None
    if body.window != "weekly":
        raise BadEvaluatorRule("`spend_limit.window` must be `weekly`.")
    try:
        limit = Decimal(str(body.limit_usd)).quantize(Decimal("0.0001"))
    except InvalidOperation:
        limit = Decimal(-1)
    if not 0 < limit <= MAX_LIMIT_USD:
        raise BadEvaluatorRule(
            f"`spend_limit.limit_usd` must be from 0.0001 to {MAX_LIMIT_USD:,} dollars."
        )
    return limit


def _check(rule: EvaluatorRule) -> None:
    rule.name = rule.name.strip()
    if not 0 < len(rule.name) <= MAX_NAME_LENGTH:
        raise BadEvaluatorRule(f"`display_name` has 1 to {MAX_NAME_LENGTH} characters.")
    if not 0 <= rule.sampling_rate <= 1:  # also false for NaN
        raise BadEvaluatorRule("`sampling_rate` must be from 0 to 1.")
    if rule.extends_queue_retention and rule.annotation_queue is None:
        raise BadEvaluatorRule(
            "`extend_annotation_queue_trace_retention` needs an `add_to_annotation_queue_id`."
        )
    for name in _FILTERS:
        text = getattr(rule, name)
        if len(text) > MAX_FILTER_LENGTH:
            raise BadEvaluatorRule(f"`{name}` has at most {MAX_FILTER_LENGTH} characters.")
        if text:
            filters.parse(text)


@transaction.atomic
def update_rule(*, caller: Caller, rule: EvaluatorRule, changes: RuleChanges) -> EvaluatorRule:
    """Change a rule. Raises as `create_rule`.

    Disabling drops the evaluations that wait. An enabled rule applies to runs received from then.
    """
    rule = _lock(rule)
    before, was_enabled = _audit_values(rule), rule.is_enabled
    for name, column in {
        "display_name": "name", "sampling_rate": "sampling_rate", "is_enabled": "is_enabled",
    }.items():  # fmt: skip
        if (value := getattr(changes, name)) is not msgspec.UNSET:
            setattr(rule, column, value)
    for name in _FILTERS:
        if (text := getattr(changes, name)) is not msgspec.UNSET:
            setattr(rule, name, text or "")
    if changes.max_calls_per_day is not msgspec.UNSET:
        rule.max_calls_per_day = _calls_per_day(changes.max_calls_per_day)
    if changes.spend_limit is not msgspec.UNSET:
        rule.weekly_limit_usd = _limit_usd(changes.spend_limit)
    _check_scope_unchanged(rule, changes)
    _change_queue(caller, rule, changes)
    _check(rule)
    _change_evaluator(caller, rule, changes)
    if rule.is_enabled and not was_enabled:
        rule.applies_from = timezone.now()
    if was_enabled and not rule.is_enabled:
        _evaluations(rule).unfinished().delete()
    rule.save()
    _record(Action.EVALUATOR_RULE_UPDATED, rule, before=before, after=_audit_values(rule))
    _change_backfill(caller, rule, changes)
    return rule


def _change_queue(caller: Caller, rule: EvaluatorRule, changes: RuleChanges) -> None:
    """Runs that are in the queue stay there, and those of before are not put in another one."""
    queue_id = changes.add_to_annotation_queue_id
    if queue_id is not msgspec.UNSET and queue_id != rule.annotation_queue_id:
        if queue_id is None and rule.evaluator is None:
            raise BadEvaluatorRule("Without an evaluator and a queue the rule does nothing.")
        _set_queue(caller, rule, queue_id)
    if (extends := changes.extend_annotation_queue_trace_retention) is not msgspec.UNSET:
        rule.extends_queue_retention = bool(extends)
    elif rule.annotation_queue is None:
        rule.extends_queue_retention = False


def _change_backfill(caller: Caller, rule: EvaluatorRule, changes: RuleChanges) -> None:
    """Start a backfill; clients that send back what they read start none."""
    started_from = changes.backfill_from
    if started_from is msgspec.UNSET or started_from is None:
        return
    last = backfills.find_last([rule]).get(rule.pk)
    if last is None or last.started_from != backfills.as_utc(started_from):
        backfills.start(caller=caller, rule=rule, started_from=started_from)


def _check_scope_unchanged(rule: EvaluatorRule, changes: RuleChanges) -> None:
    for name, current in (("session_id", rule.project_id), ("dataset_id", rule.dataset_id)):
        value = getattr(changes, name)
        if value is not msgspec.UNSET and value != current:
            raise BadEvaluatorRule(f"`{name}` of a rule cannot change; create another rule.")


def _change_evaluator(caller: Caller, rule: EvaluatorRule, changes: RuleChanges) -> None:
    if changes.evaluator_id is not msgspec.UNSET and changes.evaluator_id != rule.evaluator_id:
        if changes.evaluator_id is None:
            raise BadEvaluatorRule("`evaluator_id` must name an evaluator.")
        previous = rule.evaluator
        rule.evaluator = evaluators.get_evaluator(rule.workspace_id, changes.evaluator_id)
        rule.save(update_fields=["evaluator"])
        _delete_if_unused(previous)
        _evaluations(rule).unfinished().update(is_code=rule.is_code)
    evaluator = rule.evaluator
    own = changes.code_evaluators if rule.is_code else changes.evaluators
    other = changes.evaluators if rule.is_code else changes.code_evaluators
    if own not in (None, msgspec.UNSET) or other:
        if evaluator is None:
            raise BadEvaluatorRule("The rule has no evaluator; create another rule.")
        if not evaluator.is_part_of_rule:
            raise BadEvaluatorRule("Change the evaluator of the rule itself: others may use it.")
        before = evaluators.audit_values(evaluator)
        _apply_evaluator(caller, evaluator, changes)
        evaluators.save_changes(evaluator, before)
    _check_limit(rule)


@transaction.atomic
def delete_rule(*, rule: EvaluatorRule) -> None:
    """Delete the rule with its log, and its evaluator if that was created with it.

    Feedback and traces stay.
    """
    rule = _lock(rule)
    _record(Action.EVALUATOR_RULE_DELETED, rule, before=_audit_values(rule))
    evaluator = rule.evaluator
    rule.delete()
    _delete_if_unused(evaluator)


def _delete_if_unused(evaluator: Evaluator | None) -> None:
    if evaluator is not None and evaluator.is_part_of_rule and not evaluator.rules.exists():
        evaluators.delete_evaluator(evaluator=evaluator, with_rules=False)


def trigger_rules(*, rules: Collection[EvaluatorRule]) -> int:
    """Start the evaluations that wait for their time; return their number."""
    now = timezone.now()
    count = 0
    for rule in rules:
        count += _evaluations(rule).filter(status="pending", due_at__gt=now).update(due_at=now)
    dispatch.evaluate()
    return count


def _evaluations(rule: EvaluatorRule) -> Any:
    return Evaluation.objects.for_workspace(rule.workspace_id).filter(rule=rule)


def _lock(rule: EvaluatorRule) -> EvaluatorRule:
    rows = rules_of(rule.workspace_id).select_for_update(no_key=True, of=("self",))
    locked = rows.filter(pk=rule.pk).first()
    if locked is None:
        raise errors.EvaluatorRuleNotFound
    return locked


def _audit_values(rule: EvaluatorRule) -> dict[str, Any]:
    limit = rule.weekly_limit_usd
    return {
        "name": rule.name,
        "dataset_id": None if rule.dataset_id is None else str(rule.dataset_id),
        "session_id": None if rule.project_id is None else str(rule.project_id),
        "evaluator_id": None if rule.evaluator_id is None else str(rule.evaluator_id),
        "annotation_queue_id": (
            None if rule.annotation_queue_id is None else str(rule.annotation_queue_id)
        ),
        "is_enabled": rule.is_enabled,
        "sampling_rate": rule.sampling_rate,
        "filter": rule.filter or None,
        "max_calls_per_day": rule.max_calls_per_day,
        "weekly_limit_usd": None if limit is None else str(limit),
    }


def _record(action: Action, rule: EvaluatorRule, **values: Any) -> None:
    record(
        action,
        Target("evaluator_rule", rule.pk, rule.name),
        workspace_id=rule.workspace_id,
        **values,
    )
