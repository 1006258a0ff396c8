"""Compiles conditions on items of a run: metadata pairs, feedback, payload members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apps.trace_store.filters.fields import ItemKind
from apps.trace_store.filters.nodes import AnyItem, Comparison, Condition, Values
from apps.trace_store.filters.sql import (
    CompileTarget,
    SqlBounds,
    SqlCondition,
    all_of_sql,
    any_pair_sql,
    compare_number_sql,
    compare_sql,
    compares_numbers,
    item_conditions,
    negate,
    upper_bound,
)

_FEEDBACK = {
    "feedback_key": "f.key",
    "feedback_score": "f.score",
    "feedback_value": "f.value #>> '{}'",
    "feedback_comment": "f.comment",
    "feedback_source": "f.source ->> 'type'",
    "feedback_error": "f.is_error",
    "feedback_modified_at": "f.modified_at",
}


def compile_items(over: CompileTarget, any_item: AnyItem) -> SqlBounds:
    match any_item.items:
        case ItemKind.INPUTS | ItemKind.OUTPUTS:
            # SQL cannot read compressed payloads.
            return upper_bound(f"{over.table}.{any_item.items}_preview IS NOT NULL")
        case ItemKind.FEEDBACK:
            result = _any_feedback_sql(over, any_item)
        case ItemKind.METADATA:
            result = _single_key_sql(any_item, over.table) or any_pair_sql(
                any_item, f"{over.table}.metadata"
            )
    return SqlBounds(result, result)


def _any_feedback_sql(over: CompileTarget, any_item: AnyItem) -> SqlCondition:
    where = feedback_conditions(any_item)
    return SqlCondition(
        "EXISTS (SELECT FROM feedback_feedback f WHERE f.workspace_id = %s"
        f" AND f.run_id = {over.table}.id AND {where.text})",
        (over.workspace_id, *where.values),
    )


def feedback_conditions(any_item: AnyItem) -> SqlCondition:
    """The conditions on one row of `feedback_feedback f`."""

    def compile_condition(condition: Condition) -> SqlCondition:
        if condition.field.name == "feedback_score":
            condition = replace(condition, value=_as_floats(condition.value))
        if compares_numbers(condition):
            return compare_number_sql(condition, "f.value")
        return compare_sql(condition, f"({_FEEDBACK[condition.field.name]})")

    return item_conditions(any_item, compile_condition)


def _single_key_sql(any_item: AnyItem, table: str) -> SqlCondition | None:
    """The condition on the pair of one given key; None if the filter names no single key."""
    first, *others = sorted(any_item.conditions, key=lambda item: item.field.name != "metadata_key")
    if first.field.name != "metadata_key" or first.comparison is not Comparison.EQUAL:
        return None
    if any(item.field.name == "metadata_key" for item in (*others, *any_item.but_not)):
        return None
    key = first.value

    def compile_condition(condition: Condition) -> SqlCondition:
        if compares_numbers(condition):
            return compare_number_sql(condition, f"({table}.metadata -> %s)", key)
        return compare_sql(condition, f"({table}.metadata ->> %s)", key)

    # A positive value condition implies the key; a negative one does not.
    key_condition = [] if others else [SqlCondition(f"{table}.metadata ? %s", (key,))]
    return all_of_sql(
        [
            *key_condition,
            *map(compile_condition, others),
            *(negate(compile_condition(item)) for item in any_item.but_not),
        ]
    )


def _as_floats(value: Values) -> Any:
    if isinstance(value, tuple):
        return tuple(float(str(item)) for item in value)
    return None if value is None else float(str(value))
