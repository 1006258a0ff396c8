"""What figures must say of a stretch of time that a query's runs may lie in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from apps.trace_store.filters.nodes import Comparison, Condition, Expression
from apps.trace_store.store import rollup_dimensions
from apps.trace_store.store.metrics import Measure
from apps.trace_store.store.rollup_dimensions import Rolled
from apps.trace_store.store.types import RunQuery

_MEASURES = {
    "latency": Measure.LATENCY,
    "first_token_latency": Measure.FIRST_TOKEN,
    **{str(measure): measure for measure in Measure if measure.is_usage},
}
_MICROSECONDS = 1_000_000

Ends: TypeAlias = tuple[Decimal, Decimal]
"""The least and the most of the values of a stretch."""
_MAY_MEET: dict[Comparison, Callable[[Ends, Decimal], bool]] = {
    Comparison.GREATER: lambda ends, value: ends[1] > value,
    Comparison.AT_LEAST: lambda ends, value: ends[1] >= value,
    Comparison.LESS: lambda ends, value: ends[0] < value,
    Comparison.AT_MOST: lambda ends, value: ends[0] <= value,
    Comparison.EQUAL: lambda ends, value: ends[0] <= value <= ends[1],
}


@dataclass(frozen=True, slots=True)
class Bound:
    """What a filter asks of one measure."""

    measure: Measure
    comparison: Comparison
    value: Decimal

    def may_be_met(self, ends: Ends | None) -> bool:
        """Whether one of the values between the ends may do; of no values none does."""
        return ends is not None and _MAY_MEET[self.comparison](ends, self.value)


@dataclass(frozen=True, slots=True)
class Hint:
    """Rows of rollups; a stretch in which none of them is, or meets the bounds, has no run."""

    rolled: Rolled
    bounds: Sequence[Bound]

    @property
    def measures(self) -> list[Measure]:
        return list(dict.fromkeys(bound.measure for bound in self.bounds))


def hint_of(query: RunQuery) -> Hint | None:
    """What follows from the query for the rows of rollups; None when it would leave out little."""
    if not query.project_ids or query.run_ids is not None or query.trace_id is not None:
        return None
    query = rollup_dimensions.scoped(query)
    parts = [] if query.where is None else rollup_dimensions.conjuncts(query.where)
    told = [part for part in parts if rollup_dimensions.is_known(part)]
    if not any(rollup_dimensions.equation(part, "name", "model") for part in told):
        # Rows of all names are nearly as many as the runs.
        told = [part for part in told if rollup_dimensions.cut_of(part) != rollup_dimensions.NAMES]
    where = None if not told else rollup_dimensions.together(told)
    known = RunQuery(
        project_ids=query.project_ids,
        run_type=query.run_type,
        is_root=query.is_root,
        has_error=query.has_error,
        where=where,
    )
    rolled = rollup_dimensions.rolled(known)
    if rolled is None:
        return None
    bounds = [found for part in parts if (found := _bound(part, is_root=query.is_root))]
    # Errors have an index of their own.
    tells_kind = query.run_type is not None or any(map(_tells_kind, told))
    return Hint(rolled, bounds) if bounds or tells_kind else None


def _tells_kind(part: Expression) -> bool:
    found = rollup_dimensions.equation(part, "run_type", "status", "model")
    return found is not None and found != "error"


def _bound(part: Expression, *, is_root: bool | None) -> Bound | None:
    if not isinstance(part, Condition) or not isinstance(part.value, Decimal):
        return None
    measure = _MEASURES.get(part.field.name)
    if measure is None or part.comparison not in _MAY_MEET:
        return None
    if measure.is_usage:
        # Of what stands between a root and the calls of models, rows do not tell the sums.
        return Bound(measure, part.comparison, part.value) if is_root else None
    # Rows take what ended before it began for nothing.
    value = part.value * _MICROSECONDS
    return Bound(measure, part.comparison, value) if value > 0 else None
