"""The annotation queue and the dataset in which a rule collects runs, as requests set them."""

from __future__ import annotations

from uuid import UUID

from msgspec import UNSET

from apps.annotation.services.queues import get_queue
from apps.core.callers import Caller
from apps.datasets.services.datasets import get_dataset
from apps.evaluators.errors import BadEvaluatorRule
from apps.evaluators.models import EvaluatorRule
from apps.evaluators.services.run_collection import is_collecting
from apps.evaluators.wire import RuleBody, RuleChanges
from apps.organizations.permissions import Permission


def set_targets(caller: Caller, rule: EvaluatorRule, body: RuleBody) -> None:
    """Raises `Forbidden`, `QueueNotFound`, `DatasetNotFound` and `BadEvaluatorRule`."""
    _set_queue(caller, rule, body.add_to_annotation_queue_id)
    _set_dataset(caller, rule, body.add_to_dataset_id)
    rule.extends_queue_retention = bool(body.extend_annotation_queue_trace_retention)
    rule.prefers_correction = bool(body.add_to_dataset_prefer_correction)
    rule.extends_dataset_retention = bool(body.extend_dataset_trace_retention)
    _check(rule)


def change_targets(caller: Caller, rule: EvaluatorRule, changes: RuleChanges) -> None:
    """Runs that were collected stay where they are, and are not put in another queue or dataset.

    Raises as `set_targets`.
    """
    queue_id, dataset_id = changes.add_to_annotation_queue_id, changes.add_to_dataset_id
    was_collecting = is_collecting(rule)
    if queue_id is not UNSET and queue_id != rule.annotation_queue_id:
        _set_queue(caller, rule, queue_id)
    if dataset_id is not UNSET and dataset_id != rule.target_dataset_id:
        _set_dataset(caller, rule, dataset_id)
    if rule.evaluator is None and was_collecting and not is_collecting(rule):
        raise BadEvaluatorRule("Without an evaluator, a queue or a dataset the rule does nothing.")
    if (extends := changes.extend_annotation_queue_trace_retention) is not UNSET:
        rule.extends_queue_retention = bool(extends)
    elif rule.annotation_queue is None:
        rule.extends_queue_retention = False
    if (prefers := changes.add_to_dataset_prefer_correction) is not UNSET:
        rule.prefers_correction = bool(prefers)
    elif rule.target_dataset is None:
        rule.prefers_correction = False
    if (extends := changes.extend_dataset_trace_retention) is not UNSET:
        rule.extends_dataset_retention = bool(extends)
    elif rule.target_dataset is None:
        rule.extends_dataset_retention = False
    _check(rule)


def _set_queue(caller: Caller, rule: EvaluatorRule, queue_id: UUID | None) -> None:
    if queue_id is None:
        rule.annotation_queue = None
        return
    caller.require(Permission.ANNOTATION_QUEUES_WRITE)
    rule.annotation_queue = get_queue(caller.workspace_id, queue_id)


def _set_dataset(caller: Caller, rule: EvaluatorRule, dataset_id: UUID | None) -> None:
    if dataset_id is None:
        rule.target_dataset = None
        return
    caller.require(Permission.DATASETS_WRITE)
    rule.target_dataset = get_dataset(caller.workspace_id, dataset_id)


def _check(rule: EvaluatorRule) -> None:
    if rule.target_dataset_id is not None and rule.target_dataset_id == rule.dataset_id:
        raise BadEvaluatorRule("`add_to_dataset_id`: experiments on a dataset cannot extend it.")
    for name, is_set, target, target_name in (
        (
            "extend_annotation_queue_trace_retention",
            rule.extends_queue_retention,
            rule.annotation_queue,
            "add_to_annotation_queue_id",
        ),
        (
            "add_to_dataset_prefer_correction",
            rule.prefers_correction,
            rule.target_dataset,
            "add_to_dataset_id",
        ),
        (
            "extend_dataset_trace_retention",
            rule.extends_dataset_retention,
            rule.target_dataset,
            "add_to_dataset_id",
        ),
    ):
        if is_set and target is None:
            raise BadEvaluatorRule(f"`{name}` needs an `{target_name}`.")
