"""Filters of things that are no runs, projects and examples: on their metadata and few columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import BooleanField, Expression, F, Q

from apps.trace_store.filters import nodes
from apps.trace_store.filters.fields import Items
from apps.trace_store.filters.nodes import And, Comparison, Condition, JsonObject, Not, Or, Some
from apps.trace_store.store.filtering.comparisons import compared
from apps.trace_store.store.filtering.fragments import Sql
from apps.trace_store.store.filtering.items import some_pair
from apps.tracing.errors import FilterError

_Make = Callable[[str, tuple[Any, ...]], Sql]


def as_q(expression: nodes.Expression, *, metadata: str, columns: Mapping[str, str]) -> Q:
    """The filter as a condition of the ORM.

    `metadata` is the path of the model's JSON, such as `extra__metadata`; `columns` are the fields
    of filters that the model has, with their paths. A filter that names another is refused.
    """
    match expression:
        case Condition(comparison=Comparison.SEARCH):
            raise FilterError("Only runs are searched.")
        case And(parts):
            return Q(*(as_q(part, metadata=metadata, columns=columns) for part in parts))
        case Or(parts):
            wholes = (as_q(part, metadata=metadata, columns=columns) for part in parts)
            return Q(*wholes, _connector=Q.OR)
        case Not(part):
            return ~as_q(part, metadata=metadata, columns=columns)
        case Some(items=Items.METADATA):
            # What is no object has no pairs, and must not be asked for them.
            return _holds(metadata, lambda sql, values: _some_pair(expression, sql, values))
        case Condition() if expression.field.name == "metadata":
            return _holds(metadata, lambda sql, values: _on_object(expression, sql, values))
        case Condition() if expression.field.name in columns:
            column = columns[expression.field.name]
            return _holds(column, lambda sql, values: compared(expression, sql, *values))
    named = expression.field.name if isinstance(expression, Condition) else str(expression.items)
    known = ", ".join(["metadata", "metadata_key", "metadata_value", *columns])
    raise FilterError(f"This list is not filtered by `{named}`, but by {known}.")


def _some_pair(some: Some, sql: str, values: tuple[Any, ...]) -> Sql:
    members = f"CASE WHEN jsonb_typeof({sql}) = 'object' THEN {sql} END"
    return some_pair(some, members, *values, *values)


def _on_object(condition: Condition, sql: str, values: tuple[Any, ...]) -> Sql:
    match condition.comparison, condition.value:
        case Comparison.EXISTS, key:
            return Sql(f"{sql} ? %s", (*values, key))
        case Comparison.CONTAINS, JsonObject(text):
            return Sql(f"{sql} @> %s::jsonb", (*values, text))
    return Sql(f"{sql} <> '{{}}'", values)


def _holds(path: str, make: _Make) -> Q:
    return Q(_Holds(F(path), make))


class _Holds(Expression):
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
