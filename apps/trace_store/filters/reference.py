"""The reference evaluator of filters: evaluates one run at a time.

The store uses it where SQL cannot decide, and tests compare SQL with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
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
from apps.trace_store.filters.text_matching import (
    fold_case,
    matches_like,
    parse_search,
    split_words,
)


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
    if name == "error" and condition.comparison is Comparison.PRESENT:
        return subject.run.has_failed
    value = _VALUES[name](subject)
    if isinstance(value, dict):
        return _object_matches(value, condition)
    if isinstance(value, list):
        return any(compare_values(item, condition.comparison, condition.value) for item in value)
    return compare_values(value, condition.comparison, condition.value)


def _item_matches(item: Pair | FeedbackItem, condition: Condition) -> bool:
    value = _ITEM_VALUES[condition.field.name](item)
    if isinstance(condition.value, Decimal) and condition.field.is_json:
        # A string does not compare with numbers, even if it looks like subject.
        is_number = item.is_number if isinstance(item, Pair) else item.value_is_number
        value = Decimal(value) if is_number else None
    return compare_values(value, condition.comparison, condition.value)


def compare_values(value: Any, comparison: Comparison, operand: Any) -> bool:
    """Compare two values of one type; a missing value fails every comparison."""
    if value is None:
        return False
    if isinstance(value, float):
        operand = (
            tuple(map(float, operand)) if isinstance(operand, tuple) else operand and float(operand)
        )
    match comparison:
        case Comparison.PRESENT:
            return True
        case Comparison.EQUAL:
            return bool(value == operand)
        case Comparison.AMONG:
            return value in operand
        case Comparison.GREATER:
            return bool(value > operand)
        case Comparison.GREATER_OR_EQUAL:
            return bool(value >= operand)
        case Comparison.LESS:
            return bool(value < operand)
        case Comparison.LESS_OR_EQUAL:
            return bool(value <= operand)
        case Comparison.LIKE:
            return matches_like(value, operand)
        case Comparison.ILIKE:
            return matches_like(fold_case(value), fold_case(operand))
    raise ValueError(comparison)


def _object_matches(members: dict[str, Any], condition: Condition) -> bool:
    match condition.comparison, condition.value:
        case Comparison.PRESENT, _:
            return bool(members)
        case Comparison.EXISTS, str(key):
            return key in members
        case Comparison.CONTAINS, JsonObject(text):
            return _contains(members, _parse_json(text))
    raise ValueError(condition.comparison)


def _contains(container: Any, part: Any) -> bool:
    """Like `@>` of jsonb: objects by key, lists by element in any order."""
    if isinstance(container, dict) and isinstance(part, dict):
        return all(key in container and _contains(container[key], part[key]) for key in part)
    if isinstance(container, list) and isinstance(part, list):
        return all(any(_contains(item, operand) for item in container) for operand in part)
    # JSON true is not 1.
    return bool(container == part) and isinstance(container, bool) == isinstance(part, bool)


def _has_words(content: Sequence[str] | Any, text: str) -> bool:
    searched = parse_search(text)
    missing, prefixes = set(searched.words), set(searched.prefixes)
    for item in content:
        words = set(split_words(item))
        missing -= words
        prefixes = {prefix for prefix in prefixes if not _has_prefix(words, prefix)}
        if not missing and not prefixes:
            return True
    return False


def _has_prefix(words: Collection[str], prefix: str) -> bool:
    return any(word.startswith(prefix) for word in words)


@lru_cache(maxsize=100)
def _parse_json(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def _seconds(subject: FilterSubject, until: Any) -> Decimal | None:
    if until is None:
        return None
    duration = until - subject.run.start_time
    return (
        Decimal(duration.days * 86_400 + duration.seconds) + Decimal(duration.microseconds) / 10**6
    )


def _to_decimal(value: Any) -> Any:
    return None if value is None else Decimal(value)


_VALUES: dict[str, Callable[[FilterSubject], Any]] = {
    "id": lambda subject: subject.run.id,
    "trace_id": lambda subject: subject.run.trace_id,
    "parent_run_id": lambda subject: subject.run.parent_run_id,
    "session_id": lambda subject: subject.run.project_id,
    "reference_example_id": lambda subject: subject.run.reference_example_id,
    "reference_dataset_id": lambda subject: subject.reference_dataset_id,
    "name": lambda subject: subject.run.name,
    "run_type": lambda subject: subject.run.run_type,
    "status": lambda subject: str(subject.run.status),
    "error": lambda subject: subject.error_text,
    "thread_id": lambda subject: subject.run.thread_key,
    "dotted_order": lambda subject: subject.run.dotted_order,
    "model": lambda subject: subject.run.model,
    "is_root": lambda subject: subject.run.is_root,
    "execution_order": lambda subject: subject.run.depth + 1,
    "start_time": lambda subject: subject.run.start_time,
    "end_time": lambda subject: subject.run.end_time,
    "first_token_time": lambda subject: subject.run.first_token_time,
    "latency": lambda subject: _seconds(subject, subject.run.end_time),
    "first_token_latency": lambda subject: _seconds(subject, subject.run.first_token_time),
    "total_tokens": lambda subject: _to_decimal(subject.run.usage.total_tokens),
    "prompt_tokens": lambda subject: _to_decimal(subject.run.usage.prompt_tokens),
    "completion_tokens": lambda subject: _to_decimal(subject.run.usage.completion_tokens),
    "total_cost": lambda subject: subject.run.usage.total_cost,
    "prompt_cost": lambda subject: subject.run.usage.prompt_cost,
    "completion_cost": lambda subject: subject.run.usage.completion_cost,
    "tags": lambda subject: list(subject.run.tags),
    "metadata": lambda subject: _parse_json(bytes(subject.run.metadata_json)),
    "inputs": lambda subject: subject.run.inputs_preview,
    "outputs": lambda subject: subject.run.outputs_preview,
}
"""A list is a field with several values. Inputs and outputs only support null checks."""

_CONTENT: dict[str, Callable[[FilterSubject], Any]] = {
    "": searched_content,
    "name": lambda subject: [subject.run.name],
    "error": lambda subject: [subject.error_text or ""],
    "metadata": lambda subject: extract_texts(subject.run.metadata_json),
    "inputs": lambda subject: extract_texts(subject.inputs),
    "outputs": lambda subject: extract_texts(subject.outputs),
}

_ITEMS: dict[ItemKind, Callable[[FilterSubject], Sequence[Pair] | Sequence[FeedbackItem]]] = {
    ItemKind.METADATA: lambda subject: subject.metadata_pairs,
    ItemKind.INPUTS: lambda subject: subject.input_pairs,
    ItemKind.OUTPUTS: lambda subject: subject.output_pairs,
    ItemKind.FEEDBACK: lambda subject: subject.feedback,
}

_ITEM_VALUES: dict[str, Callable[[Any], Any]] = {
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
