"""What a filter implies for its query: time bounds, roots only, required values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from apps.trace_store.filters.nodes import And, Comparison, Condition, Expression, Not
from apps.trace_store.types import RunQuery

_TICK = timedelta(microseconds=1)


def extract_time_bounds(query: RunQuery) -> RunQuery:
    """Move start time bounds that hold for all runs from the filter to the query."""
    if query.where is None:
        return query
    rest: list[Expression] = []
    begin, end = query.started_from, query.started_until
    for part in split_conjunction(query.where):
        bounds = _time_bounds(part)
        if bounds is None:
            rest.append(part)
            continue
        low, high = bounds
        begin = low if begin is None or (low is not None and low > begin) else begin
        end = high if end is None or (high is not None and high < end) else end
    where = join_conjunction(rest) if rest else None
    return replace(query, started_from=begin, started_until=end, where=where)


def extract_root_condition(query: RunQuery) -> RunQuery:
    """Move a root condition from the filter to `is_root`, because token totals depend on it."""
    if query.where is None or query.is_root is not None:
        return query
    parts = split_conjunction(query.where)
    results = [is_root for part in parts if (is_root := root_condition(part)) is not None]
    if not results or len(set(results)) > 1:
        return query
    rest = [part for part in parts if root_condition(part) is None]
    where = join_conjunction(rest) if rest else None
    return replace(query, is_root=results[0], where=where)


def split_conjunction(where: Expression) -> list[Expression]:
    """The operands of nested `and`s."""
    if isinstance(where, And):
        return [part for item in where.parts for part in split_conjunction(item)]
    return [where]


def join_conjunction(parts: Sequence[Expression]) -> Expression:
    """Combine one or more parts by `and`."""
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def required_value(part: Expression, *names: str) -> str | None:
    """The value that the part requires of one of these fields, if it is an equality."""
    if (
        isinstance(part, Condition)
        and part.comparison is Comparison.EQUAL
        and part.field.name in names
    ):
        return str(part.value)
    return None


def _time_bounds(part: Expression) -> tuple[datetime | None, datetime | None] | None:
    if not isinstance(part, Condition) or part.field.name != "start_time":
        return None
    value = part.value
    if not isinstance(value, datetime):
        return None
    match part.comparison:
        case Comparison.GREATER_OR_EQUAL:
            return value, None
        case Comparison.GREATER:
            return value + _TICK, None
        case Comparison.LESS_OR_EQUAL:
            return None, value
        case Comparison.LESS:
            return None, value - _TICK
    return None


def root_condition(part: Expression) -> bool | None:
    if isinstance(part, Not):
        result = root_condition(part.part)
        return None if result is None else not result
    if (
        isinstance(part, Condition)
        and part.field.name == "is_root"
        and part.comparison is Comparison.EQUAL
    ):
        return bool(part.value)
    return None
