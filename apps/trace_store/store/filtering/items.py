"""Conditions on what a run has several of: pairs of metadata, feedback, parts of payloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from apps.trace_store.filters.fields import BY_NAME, Items
from apps.trace_store.filters.nodes import Comparison, Condition, Some, Values
from apps.trace_store.store.filtering.comparisons import compared
from apps.trace_store.store.filtering.fragments import Bounds, Over, Sql, at_most, both, neither

_FEEDBACK = {
    "feedback_key": "f.key",
    "feedback_score": "f.score",
    "feedback_value": "f.value #>> '{}'",
    "feedback_comment": "f.comment",
    "feedback_source": "f.source ->> 'type'",
    "feedback_error": "f.is_error",
    "feedback_modified_at": "f.modified_at",
}


def on_items(over: Over, some: Some) -> Bounds:
    match some.items:
        case Items.INPUTS | Items.OUTPUTS:
            # Compressed, where SQL does not look.
            return at_most(f"{over.table}.{some.items}_preview IS NOT NULL")
        case Items.FEEDBACK:
            found = _of_feedback(over, some)
        case Items.METADATA:
            found = _of_one_key(some, over.table) or _of_any_key(some, over.table)
    return Bounds(found, found)


def _of_feedback(over: Over, some: Some) -> Sql:
    where = feedback_met(some)
    return Sql(
        "EXISTS (SELECT FROM feedback_feedback f WHERE f.workspace_id = %s"
        f" AND f.run_id = {over.table}.id AND {where.text})",
        (over.workspace_id, *where.values),
    )


def feedback_met(some: Some) -> Sql:
    """The conditions on one row of `feedback_feedback f`."""

    def met(condition: Condition) -> Sql:
        if condition.field.name == "feedback_score":
            condition = replace(condition, value=_as_floats(condition.value))
        if _is_numeric(condition):
            return _number_met(condition, "f.value")
        return compared(condition, f"({_FEEDBACK[condition.field.name]})")

    return _together(some, met)


def _of_any_key(some: Some, table: str) -> Sql:
    return some_pair(some, f"{table}.metadata")


def some_pair(some: Some, members: str, *values: object) -> Sql:
    """A pair of metadata anywhere in the object that `members` is; `values` are those it needs."""

    def met(condition: Condition) -> Sql:
        if condition.field.name == "metadata_key":
            return compared(condition, "pair.key")
        if _is_numeric(condition):
            return _number_met(condition, "pair.value")
        return compared(condition, "(pair.value #>> '{}')")

    where = _together(some, met)
    return Sql(
        f"EXISTS (SELECT FROM jsonb_each({members}) pair WHERE {where.text})",
        (*values, *where.values),
    )


def _of_one_key(some: Some, table: str) -> Sql | None:
    """The pair of a key that is named, looked at directly; None when the key is not one."""
    first, *others = sorted(some.conditions, key=lambda one: one.field.name != "metadata_key")
    if first.field.name != "metadata_key" or first.comparison is not Comparison.EQUAL:
        return None
    if any(one.field.name == "metadata_key" for one in (*others, *some.but_not)):
        return None
    key = first.value

    def met(condition: Condition) -> Sql:
        if _is_numeric(condition):
            return _number_met(condition, f"({table}.metadata -> %s)", key)
        return compared(condition, f"({table}.metadata ->> %s)", key)

    # A value that is there says that its key is; a value that must not be there does not.
    known = [] if others else [Sql(f"{table}.metadata ? %s", (key,))]
    return both([*known, *map(met, others), *(neither(met(one)) for one in some.but_not)])


def _together(some: Some, met: Callable[[Condition], Sql]) -> Sql:
    parts = [*map(met, some.conditions), *(neither(met(one)) for one in some.but_not)]
    return both(parts)


def _is_numeric(condition: Condition) -> bool:
    return condition.field.is_json and isinstance(condition.value, Decimal)


def _number_met(condition: Condition, expression: str, *values: object) -> Sql:
    """Of a value that is a number in JSON, compared as such."""
    number = f"CASE WHEN jsonb_typeof({expression}) = 'number' THEN ({expression})::numeric END"
    return compared(
        replace(condition, field=BY_NAME["total_tokens"]), f"({number})", *values, *values
    )


def _as_floats(value: Values) -> Any:
    if isinstance(value, tuple):
        return tuple(float(str(one)) for one in value)
    return None if value is None else float(str(value))
