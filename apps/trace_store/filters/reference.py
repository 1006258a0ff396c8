"""The reference evaluator of filters: evaluates one run at a time.

The store uses it where SQL cannot decide, and tests compare SQL with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from apps.trace_store.filters.fields import ItemKind
from apps.trace_store.filters.nodes import (
    And,
    AnyItem,
    Comparison,
    Condition,
    Expression,
    JsonObject,
    Not,
    Or,
)
from apps.trace_store.filters.subjects import FeedbackItem, FilterSubject, Pair, extract_texts
from apps.trace_store.filters.terms import searched_content
from apps.trace_store.filters.text_matching import fold_case, matches_like, split_words


def matches(expression: Expression, subject: FilterSubject) -> bool:
    """Whether the run matches the filter."""
    match expression:
        case And(parts):
            return all(matches(part, subject) for part in parts)
        case Or(parts):
            return any(matches(part, subject) for part in parts)
        case Not(part):
            return not matches(part, subject)
        case AnyItem(items, conditions, but_not):
            return any(
                all(_item_matches(item, condition) for condition in conditions)
                and not any(_item_matches(item, condition) for condition in but_not)
                for item in _ITEMS[items](subject)
            )
        case Condition():
            return _run_matches(subject, expression)


def _run_matches(subject: FilterSubject, condition: Condition) -> bool:
    name = condition.field.name
    if condition.comparison is Comparison.SEARCH:
        return _has_words(_CONTENT[name](subject), str(condition.value))
    value = _VALUES[name](subject)
    if isinstance(value, dict):
        return _object_matches(value, condition)
    if isinstance(value, list):
        return any(compare_values(item, condition.comparison, condition.value) for item in value)
    return compare_values(value, condition.comparison, condition.value)


def _item_matches(item: Pair | FeedbackItem, condition: Condition) -> bool:
    value = _PARTS[condition.field.name](item)
    if isinstance(condition.value, Decimal) and condition.field.is_json:
        # A string does not compare with numbers, even if it looks like one.
        is_number = item.is_number if isinstance(item, Pair) else item.value_is_number
        value = Decimal(value) if is_number else None
    return compare_values(value, condition.comparison, condition.value)


def compare_values(value: Any, comparison: Comparison, wanted: Any) -> bool:
    """Compare two values of one type; a missing value fails every comparison."""
    if value is None:
        return False
    if isinstance(value, float):
        wanted = (
            tuple(map(float, wanted)) if isinstance(wanted, tuple) else wanted and float(wanted)
        )
    match comparison:
        case Comparison.PRESENT:
            return True
        case Comparison.EQUAL:
            return bool(value == wanted)
        case Comparison.AMONG:
            return value in wanted
        case Comparison.GREATER:
            return bool(value > wanted)
        case Comparison.GREATER_OR_EQUAL:
            return bool(value >= wanted)
        case Comparison.LESS:
            return bool(value < wanted)
        case Comparison.LESS_OR_EQUAL:
            return bool(value <= wanted)
        case Comparison.LIKE:
            return matches_like(value, wanted)
        case Comparison.ILIKE:
            return matches_like(fold_case(value), fold_case(wanted))
    raise ValueError(comparison)


def _object_matches(members: dict[str, Any], condition: Condition) -> bool:
    match condition.comparison, condition.value:
        case Comparison.PRESENT, _:
            return bool(members)
        case Comparison.EXISTS, str(key):
            return key in members
        case Comparison.CONTAINS, JsonObject(text):
            return _contains(members, _parsed(text))
    raise ValueError(condition.comparison)


def _contains(whole: Any, part: Any) -> bool:
    """Like `@>` of jsonb: objects by key, lists by element in any order."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _contains(whole[key], part[key]) for key in part)
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains(item, wanted) for item in whole) for wanted in part)
    # JSON true is not 1.
    return bool(whole == part) and isinstance(whole, bool) == isinstance(part, bool)


def _has_words(content: Sequence[str] | Any, text: str) -> bool:
    missing = set(split_words(text))
    for item in content:
        missing.difference_update(split_words(item))
        if not missing:
            return True
    return False


@lru_cache(maxsize=100)
def _parsed(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def _seconds(subject: FilterSubject, until: Any) -> Decimal | None:
    if until is None:
        return None
    lasted = until - subject.run.start_time
    return Decimal(lasted.days * 86_400 + lasted.seconds) + Decimal(lasted.microseconds) / 10**6


def _number(value: Any) -> Any:
    return None if value is None else Decimal(value)


_VALUES: dict[str, Callable[[FilterSubject], Any]] = {
    "id": lambda one: one.run.id,
    "trace_id": lambda one: one.run.trace_id,
    "parent_run_id": lambda one: one.run.parent_run_id,
    "session_id": lambda one: one.run.project_id,
    "reference_example_id": lambda one: one.run.reference_example_id,
    "reference_dataset_id": lambda one: one.reference_dataset_id,
    "name": lambda one: one.run.name,
    "run_type": lambda one: one.run.run_type,
    "status": lambda one: str(one.run.status),
    "error": lambda one: one.error_text,
    "thread_id": lambda one: one.run.thread_key,
    "dotted_order": lambda one: one.run.dotted_order,
    "model": lambda one: one.run.model,
    "is_root": lambda one: one.run.is_root,
    "execution_order": lambda one: one.run.depth + 1,
    "start_time": lambda one: one.run.start_time,
    "end_time": lambda one: one.run.end_time,
    "first_token_time": lambda one: one.run.first_token_time,
    "latency": lambda one: _seconds(one, one.run.end_time),
    "first_token_latency": lambda one: _seconds(one, one.run.first_token_time),
    "total_tokens": lambda one: _number(one.run.usage.total_tokens),
    "prompt_tokens": lambda one: _number(one.run.usage.prompt_tokens),
    "completion_tokens": lambda one: _number(one.run.usage.completion_tokens),
    "total_cost": lambda one: one.run.usage.total_cost,
    "prompt_cost": lambda one: one.run.usage.prompt_cost,
    "completion_cost": lambda one: one.run.usage.completion_cost,
    "tags": lambda one: list(one.run.tags),
    "metadata": lambda one: _parsed(bytes(one.run.metadata_json)),
    "inputs": lambda one: one.run.inputs_preview,
    "outputs": lambda one: one.run.outputs_preview,
}
"""A list is a field with several values. Inputs and outputs only support null checks."""

_CONTENT: dict[str, Callable[[FilterSubject], Any]] = {
    "": searched_content,
    "name": lambda one: [one.run.name],
    "error": lambda one: [one.error_text or ""],
    "metadata": lambda one: extract_texts(one.run.metadata_json),
    "inputs": lambda one: extract_texts(one.inputs),
    "outputs": lambda one: extract_texts(one.outputs),
}

_ITEMS: dict[ItemKind, Callable[[FilterSubject], Sequence[Pair] | Sequence[FeedbackItem]]] = {
    ItemKind.METADATA: lambda one: one.metadata_pairs,
    ItemKind.INPUTS: lambda one: one.input_pairs,
    ItemKind.OUTPUTS: lambda one: one.output_pairs,
    ItemKind.FEEDBACK: lambda one: one.feedback,
}

_PARTS: dict[str, Callable[[Any], Any]] = {
    "metadata_key": lambda pair: pair.key,
    "metadata_value": lambda pair: pair.value,
    "input_key": lambda pair: pair.key,
    "input_value": lambda pair: pair.value,
    "output_key": lambda pair: pair.key,
    "output_value": lambda pair: pair.value,
    "feedback_key": lambda row: row.key,
    "feedback_score": lambda row: row.score,
    "feedback_value": lambda row: row.value,
    "feedback_comment": lambda row: row.comment,
    "feedback_source": lambda row: row.source,
    "feedback_error": lambda row: row.is_error,
    "feedback_modified_at": lambda row: row.modified_at,
}
