"""From the tree of a filter to SQL over `tracing_run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.trace_store.filters.nodes import And, Condition, Expression, Not, Or, Some
from apps.trace_store.store.filtering.columns import on_column
from apps.trace_store.store.filtering.fragments import Bounds, Over, both, either, neither
from apps.trace_store.store.filtering.items import on_items
from apps.trace_store.store.filtering.terms import Terms, needed_terms


@dataclass(frozen=True, slots=True)
class Compiled:
    """A filter in SQL."""

    sql: str
    """A condition on `tracing_run`; no run that the filter is true of fails it."""
    values: Sequence[Any]
    is_exact: bool
    """Whether what it selects is the answer. If not, `filters.reference` decides on each row."""
    terms: Terms | None
    """What the index of terms must say of a run for the filter to be true of it: of each of
    these sets at least one term. None when nothing can be said."""


def compile_where(
    workspace_id: UUID,
    expression: Expression,
    *,
    table: str = "tracing_run",
    as_settled: bool = False,
) -> Compiled:
    """The filter over the table, or over an alias of it.

    With `as_settled`, tokens and costs are those that were settled last, as statistics have them;
    without, a run whose trace has just changed is one to decide on.
    """
    found = bounds(Over(workspace_id, table, as_settled), expression)
    return Compiled(
        found.perhaps.text, found.perhaps.values, found.is_exact, needed_terms(expression)
    )


def bounds(over: Over, expression: Expression) -> Bounds:
    match expression:
        case And(parts):
            found = [bounds(over, part) for part in parts]
            return Bounds(both([one.perhaps for one in found]), both([one.surely for one in found]))
        case Or(parts):
            found = [bounds(over, part) for part in parts]
            return Bounds(
                either([one.perhaps for one in found]), either([one.surely for one in found])
            )
        case Not(part):
            inner = bounds(over, part)
            return Bounds(neither(inner.surely), neither(inner.perhaps))
        case Some():
            return on_items(over, expression)
        case Condition():
            return on_column(over, expression)
