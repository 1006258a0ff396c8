"""Compiles filter trees to SQL over `trace_store_run`, its root, its trace and its thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.trace_store.errors import FilterError
from apps.trace_store.filters.fields import ItemKind
from apps.trace_store.filters.nodes import And, AnyItem, Comparison, Condition, Expression, Not, Or
from apps.trace_store.filters.sql import (
    CompileTarget,
    SqlBounds,
    SqlCondition,
    all_of_sql,
    any_of_sql,
    compare_sql,
    negate,
)
from apps.trace_store.postgres.filtering.columns import compile_column
from apps.trace_store.postgres.filtering.items import compile_items, feedback_conditions
from apps.trace_store.postgres.filtering.terms import RequiredTerms, required_terms
from apps.trace_store.run_status import failure_sql, is_failed_sql


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """A filter as SQL."""

    sql: str
    """A necessary condition on `trace_store_run`."""
    values: Sequence[Any]
    is_exact: bool
    """Whether the condition is also sufficient. If not, `filters.reference` decides."""
    terms: RequiredTerms | None
    """The terms that a matching run must have: at least one of each clause. None if unknown."""


def compile_where(
    workspace_id: UUID,
    expression: Expression,
    *,
    table: str = "trace_store_run",
    as_processed: bool = False,
) -> CompiledFilter:
    """Compile the filter over the table or an alias of it.

    With `as_processed`, tokens and costs are the stored totals, as in statistics; without, a run
    whose trace has pending runs stays undecided.
    """
    result = compile_bounds(CompileTarget(workspace_id, table, as_processed), expression)
    return CompiledFilter(
        result.necessary.text, result.necessary.values, result.is_exact, required_terms(expression)
    )


def compile_bounds(over: CompileTarget, expression: Expression) -> SqlBounds:
    match expression:
        case And(parts):
            results = [compile_bounds(over, part) for part in parts]
            return SqlBounds(
                all_of_sql([item.necessary for item in results]),
                all_of_sql([item.sufficient for item in results]),
            )
        case Or(parts):
            results = [compile_bounds(over, part) for part in parts]
            return SqlBounds(
                any_of_sql([item.necessary for item in results]),
                any_of_sql([item.sufficient for item in results]),
            )
        case Not(part):
            inner = compile_bounds(over, part)
            return SqlBounds(negate(inner.sufficient), negate(inner.necessary))
        case AnyItem():
            return compile_items(over, expression)
        case Condition():
            return compile_column(over, expression)


# Every dotted order begins with the time of the root.
_ROOT_TIME = "(left({t}.dotted_order, 15)::timestamp AT TIME ZONE 'UTC')"
_SKEW = "interval '1 day'"


def bound_by_root_sql(table: str, run_table: str) -> str:
    """A lower bound of the partition times of a trace, from any of its runs, to prune partitions.

    No run precedes its root; clocks may be slightly off.
    """
    return f"{table}.partition_time >= {_ROOT_TIME.format(t=run_table)} - {_SKEW}"


def compile_where_root(
    workspace_id: UUID,
    expression: Expression,
    *,
    table: str = "trace_store_run",
    as_processed: bool = False,
    one_by_one: bool = False,
) -> CompiledFilter:
    """Compile the condition that the root of the run's trace matches.

    With `one_by_one`, each root is looked up by key, which suits few runs in order. Otherwise the
    planner may scan all roots, which suits many runs.
    """
    time = _ROOT_TIME.format(t=table)
    # The exact partition time is unknown; an index lookup covers the days around it.
    inner = compile_where(workspace_id, expression, table="root", as_processed=as_processed)
    return _exists(
        workspace_id,
        inner,
        "root",
        f"root.id = {table}.trace_id AND root.project_id = {table}.project_id"
        f" AND root.partition_time BETWEEN {time} - {_SKEW} AND {time} + {_SKEW}",
        one_by_one=one_by_one,
    )


def compile_where_any(
    workspace_id: UUID,
    expression: Expression,
    *,
    table: str = "trace_store_run",
    as_processed: bool = False,
) -> CompiledFilter:
    """Compile the condition that a run of the trace matches."""
    inner = compile_where(workspace_id, expression, table="trace_run", as_processed=as_processed)
    return _exists(
        workspace_id,
        inner,
        "trace_run",
        f"trace_run.trace_id = {table}.trace_id AND trace_run.project_id = {table}.project_id"
        f" AND {bound_by_root_sql('trace_run', table)}",
    )


def _exists(
    workspace_id: UUID, inner: CompiledFilter, table: str, related: str, *, one_by_one: bool = False
) -> CompiledFilter:
    # OFFSET keeps the planner from turning the subquery into a join.
    text = (
        f"EXISTS (SELECT FROM trace_store_run {table} WHERE {table}.workspace_id = %s"
        f" AND {related} AND ({inner.sql}){' OFFSET 0' if one_by_one else ''})"
    )
    # Terms describe the run itself, not related runs.
    return CompiledFilter(text, (workspace_id, *inner.values), inner.is_exact, terms=None)


_STARTED = "coalesce(r.start_time, r.partition_time)"
_FIRST, _LAST = "r.partition_time, r.id", "r.partition_time DESC, r.id DESC"
_LATENCY = f"extract(epoch FROM r.end_time - {_STARTED})"
_TOTAL_FIELDS = (
    *("total_tokens", "prompt_tokens", "completion_tokens"),
    *("total_cost", "prompt_cost", "completion_cost"),
)
_COLUMNS = {
    "thread_id": "r.thread_key",
    "count": "count(*)",
    "num_errored_turns": f"count(*) FILTER (WHERE {is_failed_sql('r')})",
    "min_start_time": f"min({_STARTED})",
    "max_start_time": f"max({_STARTED})",
    "last_end_time": "max(r.end_time)",
    "latency_p50": f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {_LATENCY})",
    "latency_p99": f"percentile_cont(0.99) WITHIN GROUP (ORDER BY {_LATENCY})",
    # A turn has the stored total of its descendants once it is processed.
    **{name: f"sum(coalesce(r.sum_{name}, r.{name}))" for name in _TOTAL_FIELDS},
    "first_trace_id": f"(array_agg(r.trace_id ORDER BY {_FIRST}))[1]",
    "last_trace_id": f"(array_agg(r.trace_id ORDER BY {_LAST}))[1]",
    "first_inputs": f"(array_agg(r.inputs_preview ORDER BY {_FIRST}))[1]",
    "last_outputs": f"(array_agg(r.outputs_preview ORDER BY {_LAST}))[1]",
    "last_error": f"(array_agg({failure_sql('r')} ORDER BY {_LAST}))[1]",
}


def compile_having(workspace_id: UUID, expression: Expression) -> SqlCondition:
    """Compile a thread filter for turns grouped by project and thread."""
    match expression:
        case And(parts):
            return all_of_sql([compile_having(workspace_id, part) for part in parts])
        case Or(parts):
            return any_of_sql([compile_having(workspace_id, part) for part in parts])
        case Not(part):
            return negate(compile_having(workspace_id, part))
        case AnyItem(items=ItemKind.FEEDBACK):
            feedback = feedback_conditions(expression)
            return SqlCondition(
                "EXISTS (SELECT FROM feedback_feedback f WHERE f.workspace_id = %s"
                " AND f.project_id = r.project_id AND f.thread_key = r.thread_key"
                f" AND {feedback.text})",
                (workspace_id, *feedback.values),
            )
        case Condition() if expression.comparison is not Comparison.SEARCH:
            return compare_sql(expression, f"({_COLUMNS[expression.field.name]})")
    raise FilterError(
        "Filters of threads do not support `search`. Use `filter`, which searches their turns."
    )
