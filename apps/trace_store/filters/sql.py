"""SQL fragments with their values, and the bounds of conditions that SQL cannot decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.trace_store.filters.fields import BY_NAME, FieldType
from apps.trace_store.filters.nodes import AnyItem, Comparison, Condition
from apps.trace_store.filters.text_matching import fold_case


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A SQL condition with its parameters; NULL counts as not true, as in `WHERE`."""

    text: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileTarget:
    """The relation and options for which a filter is compiled."""

    workspace_id: UUID
    table: str
    """`trace_store_run`, or an alias of it."""
    as_processed: bool = False
    """Whether the stored totals are taken as final, so that SQL can decide on them."""


TRUE, FALSE = SqlCondition("true"), SqlCondition("false")


@dataclass(frozen=True, slots=True)
class SqlBounds:
    """Bounds of a condition: `sufficient` implies it, and it implies `necessary`."""

    necessary: SqlCondition
    sufficient: SqlCondition

    @property
    def is_exact(self) -> bool:
        return self.necessary == self.sufficient


def exact_bounds(text: str, *values: Any) -> SqlBounds:
    result = SqlCondition(text, values)
    return SqlBounds(result, result)


def upper_bound(text: str, *values: Any) -> SqlBounds:
    """Return the bounds of a condition for which this SQL is only necessary."""
    return SqlBounds(SqlCondition(text, values), FALSE)


def all_of_sql(parts: Sequence[SqlCondition]) -> SqlCondition:
    return _join(parts, "AND", neutral=TRUE, absorbing=FALSE)


def any_of_sql(parts: Sequence[SqlCondition]) -> SqlCondition:
    return _join(parts, "OR", neutral=FALSE, absorbing=TRUE)


def negate(part: SqlCondition) -> SqlCondition:
    """Return the complement, which is true where the part is NULL."""
    if part == TRUE:
        return FALSE
    if part == FALSE:
        return TRUE
    return SqlCondition(f"({part.text}) IS NOT TRUE", part.values)


def _join(
    parts: Sequence[SqlCondition], operator: str, *, neutral: SqlCondition, absorbing: SqlCondition
) -> SqlCondition:
    undecided = [part for part in parts if part != neutral]
    if absorbing in undecided:
        return absorbing
    if len(undecided) < 2:
        return undecided[0] if undecided else neutral
    text = f" {operator} ".join(f"({part.text})" for part in undecided)
    return SqlCondition(text, tuple(value for part in undecided for value in part.values))


_SIGNS = {
    Comparison.EQUAL: "=",
    Comparison.GREATER: ">",
    Comparison.GREATER_OR_EQUAL: ">=",
    Comparison.LESS: "<",
    Comparison.LESS_OR_EQUAL: "<=",
}


def compare_sql(condition: Condition, expression: str, *values: object) -> SqlCondition:
    """Compile a condition on the expression; `values` are the parameters of the expression."""
    comparison, operand = condition.comparison, condition.value
    is_text = condition.field.kind in {FieldType.TEXT, FieldType.TEXTS}
    match comparison:
        case Comparison.PRESENT:
            return SqlCondition(f"{expression} IS NOT NULL", values)
        case Comparison.AMONG if isinstance(operand, tuple):
            return (
                SqlCondition(f"{expression} = ANY(%s)", (*values, list(operand)))
                if operand
                else FALSE
            )
        case Comparison.LIKE:
            return SqlCondition(f'{expression} COLLATE "C" LIKE %s', (*values, operand))
        case Comparison.ILIKE:
            # The built-in collation gives the same result on every system.
            lowered = f'lower({expression} COLLATE "pg_c_utf8")'
            return SqlCondition(f"{lowered} LIKE %s", (*values, fold_case(str(operand))))
    sign = _SIGNS[comparison]
    # Order texts by code point, independently of the locale of the database.
    collated = ' COLLATE "C"' if is_text and sign != "=" else ""
    return SqlCondition(f"{expression}{collated} {sign} %s", (*values, operand))


def any_pair_sql(any_item: AnyItem, members: str, *values: object) -> SqlCondition:
    """The condition that a pair of the JSON object `members`, with parameters `values`, matches."""

    def compile_condition(condition: Condition) -> SqlCondition:
        if condition.field.name == "metadata_key":
            return compare_sql(condition, "pair.key")
        if compares_numbers(condition):
            return compare_number_sql(condition, "pair.value")
        return compare_sql(condition, "(pair.value #>> '{}')")

    where = item_conditions(any_item, compile_condition)
    return SqlCondition(
        f"EXISTS (SELECT FROM jsonb_each({members}) pair WHERE {where.text})",
        (*values, *where.values),
    )


def item_conditions(
    any_item: AnyItem, compile_condition: Callable[[Condition], SqlCondition]
) -> SqlCondition:
    """Join the compiled conditions on one item."""
    excluded = (negate(compile_condition(condition)) for condition in any_item.but_not)
    return all_of_sql([*map(compile_condition, any_item.conditions), *excluded])


def compares_numbers(condition: Condition) -> bool:
    return condition.field.is_json and isinstance(condition.value, Decimal)


def compare_number_sql(condition: Condition, expression: str, *values: object) -> SqlCondition:
    """Compare a JSON value as a number; values of other types do not match."""
    number = f"CASE WHEN jsonb_typeof({expression}) = 'number' THEN ({expression})::numeric END"
    return compare_sql(
        replace(condition, field=BY_NAME["total_tokens"]), f"({number})", *values, *values
    )
