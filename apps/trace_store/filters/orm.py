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

_SqlBuilder = Callable[[str, tuple[Any, ...]], SqlCondition]


def filter_to_q(expression: nodes.Expression, *, metadata: str, columns: Mapping[str, str]) -> Q:
    """Compile the filter to a `Q`. Raises `FilterError` for a field that the model does not have.

    `metadata` is the path of the JSON field, such as `extra__metadata`; `columns` maps filter
    fields to paths of the model.
    """
    match expression:
        case Condition(comparison=Comparison.SEARCH):
            raise FilterError("This list does not support `search`; lists of runs do.")
        case And(parts):
            return Q(*(filter_to_q(part, metadata=metadata, columns=columns) for part in parts))
        case Or(parts):
            operands = (filter_to_q(part, metadata=metadata, columns=columns) for part in parts)
            return Q(*operands, _connector=Q.OR)
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
    field = expression.field.name if isinstance(expression, Condition) else str(expression.items)
    *names, last = ["metadata", "metadata_key", "metadata_value", *columns]
    raise FilterError(f"This list has no field `{field}`. It has {', '.join(names)} and {last}.")


def _any_pair(item: AnyItem, sql: str, values: tuple[Any, ...]) -> SqlCondition:
    members = f"CASE WHEN jsonb_typeof({sql}) = 'object' THEN {sql} END"
    return any_pair_sql(item, members, *values, *values)


def _compare_object(condition: Condition, sql: str, values: tuple[Any, ...]) -> SqlCondition:
    match condition.comparison, condition.value:
        case Comparison.EXISTS, key:
            return SqlCondition(f"{sql} ? %s", (*values, key))
        case Comparison.CONTAINS, JsonObject(text):
            return SqlCondition(f"{sql} @> %s::jsonb", (*values, text))
    return SqlCondition(f"{sql} <> '{{}}'", values)


def _as_q(path: str, build_sql: _SqlBuilder) -> Q:
    return Q(_IsTrue(F(path), build_sql))


class _IsTrue(Expression):
    """A condition that is never null, so that it can be negated."""

    output_field = BooleanField()
    conditional = True

    def __init__(self, source: Any, build_sql: _SqlBuilder) -> None:
        super().__init__()
        self.source = source
        self.build_sql = build_sql

    def get_source_expressions(self) -> list[Any]:
        return [self.source]

    def set_source_expressions(self, exprs: Any) -> None:
        (self.source,) = exprs

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        sql, values = compiler.compile(self.source)
        result = self.build_sql(f"({sql})", tuple(values))
        return f"(({result.text}) IS TRUE)", result.values
