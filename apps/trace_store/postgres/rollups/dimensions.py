"""Dimensions of rollup rows, and the queries that rollups can answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from apps.trace_store.filters.fields import BY_NAME
from apps.trace_store.filters.nodes import And, Comparison, Condition, Expression, Not, Or
from apps.trace_store.filters.query_analysis import root_condition, split_conjunction
from apps.trace_store.filters.reference import compare_values
from apps.trace_store.types import RunQuery

TRACE_SCOPE = -1
"""The scope of roots with the tokens of their traces."""
DEPTH_SCOPES = (0, 1, 2)
"""The scopes of roots, their children, and deeper runs, each with its own tokens."""
BY_NOTHING, BY_TYPE, BY_NAME_AND_MODEL = 0, 1, 2
"""Granularities: one total row, rows by type and status, rows also by name and model."""


class RollupDimensions(NamedTuple):
    granularity: int
    scope: int
    run_type: str = ""
    status: str = ""
    name: str = ""
    model: str = ""


_VALUES: dict[str, Callable[[RollupDimensions], str | bool | Decimal | None]] = {
    "name": lambda dimensions: dimensions.name,
    "run_type": lambda dimensions: dimensions.run_type,
    "status": lambda dimensions: dimensions.status,
    "model": lambda dimensions: dimensions.model or None,
    "is_root": lambda dimensions: dimensions.scope <= 0,
    "execution_order": lambda dimensions: Decimal(max(dimensions.scope, 0) + 1),
    # Rollups only know whether there is an error.
    "error": lambda dimensions: "error" if dimensions.status == "error" else None,
}
_REQUIRED_GRANULARITY = {
    "name": BY_NAME_AND_MODEL,
    "model": BY_NAME_AND_MODEL,
    "run_type": BY_TYPE,
    "status": BY_TYPE,
    "error": BY_TYPE,
}


@dataclass(frozen=True, slots=True)
class RollupFilter:
    """The rollup rows that answer a query."""

    granularity: int
    scopes: tuple[int, ...]
    where: tuple[Expression, ...] = ()

    def matches(self, dimensions: RollupDimensions) -> bool:
        return all(_evaluate(part, dimensions) for part in self.where)

    @property
    def equations(self) -> list[tuple[str, str]]:
        """Columns with their required values, which limit the rows to read."""
        return [
            (part.field.name, str(part.value))
            for part in self.where
            if isinstance(part, Condition)
            and part.comparison is Comparison.EQUAL
            and part.field.name in {"name", "run_type", "status", "model"}
        ]

    def grouped_by(self, attribute: str | None) -> RollupFilter:
        """The same filter with a granularity that allows the grouping."""
        required = _REQUIRED_GRANULARITY.get(attribute or "", BY_NOTHING)
        return replace(self, granularity=max(self.granularity, required))


def rollup_filter(query: RunQuery, *, depth: int | None = None) -> RollupFilter | None:
    """The rollup rows that answer the query; None if rollups cannot answer it."""
    unsupported = (
        query.run_ids,
        query.trace_id,
        query.parent_run_id,
        query.reference_example_ids,
        query.where_root,
        query.where_any,
        query.where_thread,
    )
    if query.project_ids is None or any(value is not None for value in unsupported):
        return None
    where: list[Expression] = []
    is_root = query.is_root
    for part in () if query.where is None else split_conjunction(query.where):
        if (root_value := root_condition(part)) is not None and is_root in {None, root_value}:
            is_root = root_value
        elif can_evaluate(part):
            where.append(part)
        else:
            return None
    if query.run_type is not None:
        where.append(Condition(BY_NAME["run_type"], Comparison.EQUAL, query.run_type))
    if query.has_error is not None:
        failed = Condition(BY_NAME["error"], Comparison.PRESENT)
        where.append(failed if query.has_error else Not(failed))
    scopes: tuple[int, ...]
    scopes = DEPTH_SCOPES if is_root is None else (TRACE_SCOPE,) if is_root else DEPTH_SCOPES[1:]
    if depth is not None:
        scopes = (depth,) if is_root is not True else ()
    granularity = max((required_granularity(part) for part in where), default=BY_NOTHING)
    return RollupFilter(granularity, scopes, tuple(where))


def can_evaluate(part: Expression) -> bool:
    """Whether rollup rows can decide the condition."""
    match part:
        case And() | Or():
            return all(can_evaluate(item) for item in part.parts)
        case Not():
            return can_evaluate(part.part)
        case Condition():
            if part.field.name == "error":
                return part.comparison is Comparison.PRESENT
            if part.field.name == "execution_order":  # deeper levels share one scope
                return part.comparison is Comparison.EQUAL and part.value in {1, 2}
            return part.field.name in _VALUES
    return False


def required_granularity(part: Expression) -> int:
    """The coarsest granularity that can decide the condition."""
    match part:
        case And() | Or():
            return max(required_granularity(item) for item in part.parts)
        case Not():
            return required_granularity(part.part)
        case Condition():
            return _REQUIRED_GRANULARITY.get(part.field.name, BY_NOTHING)
    return BY_NOTHING


def _evaluate(part: Expression, dimensions: RollupDimensions) -> bool:
    match part:
        case And():
            return all(_evaluate(item, dimensions) for item in part.parts)
        case Or():
            return any(_evaluate(item, dimensions) for item in part.parts)
        case Not():
            return not _evaluate(part.part, dimensions)
        case Condition():
            value = _VALUES[part.field.name](dimensions)
            return compare_values(value, part.comparison, part.value)
    raise AssertionError("`can_evaluate` rejects other conditions")
