"""Filters of things that are no runs, projects and examples: on their metadata and few columns."""

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
    """The filter as a condition of the ORM.

    `metadata` is the path of the model's JSON, such as `extra__metadata`; `columns` are the fields
    of filters that the model has, with their paths. A filter that names another is refused.
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
            # What is no object has no pairs, and must not be asked for them.
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
    """True or false, never null, so that its complement is one."""

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
        found = self.make(f"({sql})", tuple(values))
        return f"(({found.text}) IS TRUE)", found.values
