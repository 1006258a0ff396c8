"""Pieces of SQL with their values, and what is known of a condition that SQL cannot decide."""

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
    """A condition. Where it comes out as NULL it is not true, as everywhere in SQL."""

    text: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileTarget:
    """What a filter is compiled for."""

    workspace_id: UUID
    table: str
    """`trace_store_run`, or an alias of it."""
    as_processed: bool = False
    """Whether sums count as they were processed last, so that SQL can decide on them."""


TRUE, FALSE = SqlCondition("true"), SqlCondition("false")


@dataclass(frozen=True, slots=True)
class SqlBounds:
    """A condition between two: true wherever `surely` is, and nowhere that `perhaps` is not."""

    perhaps: SqlCondition
    surely: SqlCondition

    @property
    def is_exact(self) -> bool:
        return self.perhaps == self.surely


def exact_bounds(text: str, *values: Any) -> SqlBounds:
    result = SqlCondition(text, values)
    return SqlBounds(result, result)


def upper_bound(text: str, *values: Any) -> SqlBounds:
    """What may be true only where this is."""
    return SqlBounds(SqlCondition(text, values), FALSE)


def all_of_sql(parts: Sequence[SqlCondition]) -> SqlCondition:
    return _join(parts, "AND", nothing=TRUE, decides=FALSE)


def any_of_sql(parts: Sequence[SqlCondition]) -> SqlCondition:
    return _join(parts, "OR", nothing=FALSE, decides=TRUE)


def negate(part: SqlCondition) -> SqlCondition:
    """The complement: also where the part is NULL."""
    if part == TRUE:
        return FALSE
    if part == FALSE:
        return TRUE
    return SqlCondition(f"({part.text}) IS NOT TRUE", part.values)


def _join(
    parts: Sequence[SqlCondition], word: str, *, nothing: SqlCondition, decides: SqlCondition
) -> SqlCondition:
    telling = [part for part in parts if part != nothing]
    if decides in telling:
        return decides
    if len(telling) < 2:
        return telling[0] if telling else nothing
    text = f" {word} ".join(f"({part.text})" for part in telling)
    return SqlCondition(text, tuple(value for part in telling for value in part.values))


_SIGNS = {
    Comparison.EQUAL: "=",
    Comparison.GREATER: ">",
    Comparison.GREATER_OR_EQUAL: ">=",
    Comparison.LESS: "<",
    Comparison.LESS_OR_EQUAL: "<=",
}


def compare_sql(condition: Condition, expression: str, *values: object) -> SqlCondition:
    """The condition on the expression; `values` are those that the expression needs itself."""
    comparison, wanted = condition.comparison, condition.value
    is_text = condition.field.kind in {FieldType.TEXT, FieldType.TEXTS}
    match comparison:
        case Comparison.PRESENT:
            return SqlCondition(f"{expression} IS NOT NULL", values)
        case Comparison.AMONG if isinstance(wanted, tuple):
            return (
                SqlCondition(f"{expression} = ANY(%s)", (*values, list(wanted)))
                if wanted
                else FALSE
            )
        case Comparison.LIKE:
            return SqlCondition(f'{expression} COLLATE "C" LIKE %s', (*values, wanted))
        case Comparison.ILIKE:
            # By a collation of the server's own: the same on every system.
            lowered = f'lower({expression} COLLATE "pg_c_utf8")'
            return SqlCondition(f"{lowered} LIKE %s", (*values, fold_case(str(wanted))))
    sign = _SIGNS[comparison]
    # Texts are in the order of their characters, whatever the database's language.
    collated = ' COLLATE "C"' if is_text and sign != "=" else ""
    return SqlCondition(f"{expression}{collated} {sign} %s", (*values, wanted))


def any_pair_sql(some: AnyItem, members: str, *values: object) -> SqlCondition:
    """A pair of metadata anywhere in the object that `members` is; `values` are those it needs."""

    def met(condition: Condition) -> SqlCondition:
        if condition.field.name == "metadata_key":
            return compare_sql(condition, "pair.key")
        if compares_numbers(condition):
            return compare_number_sql(condition, "pair.value")
        return compare_sql(condition, "(pair.value #>> '{}')")

    where = item_conditions(some, met)
    return SqlCondition(
        f"EXISTS (SELECT FROM jsonb_each({members}) pair WHERE {where.text})",
        (*values, *where.values),
    )


def item_conditions(some: AnyItem, met: Callable[[Condition], SqlCondition]) -> SqlCondition:
    parts = [*map(met, some.conditions), *(negate(met(item)) for item in some.but_not)]
    return all_of_sql(parts)


def compares_numbers(condition: Condition) -> bool:
    return condition.field.is_json and isinstance(condition.value, Decimal)


def compare_number_sql(condition: Condition, expression: str, *values: object) -> SqlCondition:
    """Of a value that is a number in JSON, compared as such."""
    number = f"CASE WHEN jsonb_typeof({expression}) = 'number' THEN ({expression})::numeric END"
    return compare_sql(
        replace(condition, field=BY_NAME["total_tokens"]), f"({number})", *values, *values
    )
