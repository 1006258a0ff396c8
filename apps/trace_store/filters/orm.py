"""Compiles filters to ORM conditions for models with metadata, such as projects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import BooleanField, Expression, F, Q

from apps.trace_store.errors import FilterError
from apps.trace_store.filters import nodes
from apps.trace_store.filters.fields import ItemKind
from apps.trace_store.filters.nodes import And, AnyItem, Comparison, Condition, JsonObject, Not, Or
from apps.trace_store.filters.sql import SqlCondition, any_pair_sql, compare_sql

_Make = Callable[[str, tuple[Any, ...]], SqlCondition]


def filter_to_q(expression: nodes.Expression, *, metadata: str, columns: Mapping[str, str]) -> Q:
    """Compile the filter to a `Q`. Raises `FilterError` for a field that the model does not have.

    `metadata` is the path of the JSON field, such as `extra__metadata`; `columns` maps filter
    fields to paths of the model.
    """
    match expression:
        case Condition(comparison=Comparison.SEARCH):
            raise FilterError("Only runs are searched.")
        case And(parts):
            return Q(*(filter_to_q(part, metadata=metadata, columns=columns) for part in parts))
        case Or(parts):
            wholes = (filter_to_q(part, metadata=metadata, columns=columns) for part in parts)
            return Q(*wholes, _connector=Q.OR)
        case Not(part):
            return ~filter_to_q(part, metadata=metadata, columns=columns)
        case AnyItem(items=ItemKind.METADATA):
            # Only JSON objects have pairs; `jsonb_each` fails on other values.
            return _as_q(metadata, lambda sql, values: _any_pair(expression, sql, values))
        case Condition() if expression.field.name == "metadata":
            return _as_q(metadata, lambda sql, values: _compare_object(expression, sql, values))
        case Condition() if expression.field.name in columns:
            column = columns[expression.field.name]
            return _as_q(column, lambda sql, values: compare_sql(expression, sql, *values))
    named = expression.field.name if isinstance(expression, Condition) else str(expression.items)
    known = ", ".join(["metadata", "metadata_key", "metadata_value", *columns])
    raise FilterError(f"This list is not filtered by `{named}`, but by {known}.")


def _any_pair(some: AnyItem, sql: str, values: tuple[Any, ...]) -> SqlCondition:
    members = f"CASE WHEN jsonb_typeof({sql}) = 'object' THEN {sql} END"
    return any_pair_sql(some, members, *values, *values)


def _compare_object(condition: Condition, sql: str, values: tuple[Any, ...]) -> SqlCondition:
    match condition.comparison, condition.value:
        case Comparison.EXISTS, key:
            return SqlCondition(f"{sql} ? %s", (*values, key))
        case Comparison.CONTAINS, JsonObject(text):
            return SqlCondition(f"{sql} @> %s::jsonb", (*values, text))
    return SqlCondition(f"{sql} <> '{{}}'", values)


def _as_q(path: str, make: _Make) -> Q:
    return Q(_IsTrue(F(path), make))


class _IsTrue(Expression):
    """A condition that is never null, so that it can be negated."""

    output_field = BooleanField()
    conditional = True

    def __init__(self, source: Any, make: _Make) -> None:
        super().__init__()
        self.source = source
        self.make = make

    def get_source_expressions(self) -> list[Any]:
        return [self.source]

    def set_source_expressions(self, exprs: Any) -> None:
        (self.source,) = exprs

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        sql, values = compiler.compile(self.source)
        result = self.make(f"({sql})", tuple(values))
        return f"(({result.text}) IS TRUE)", result.values
