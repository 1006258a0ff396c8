"""Filters of whole threads, as SQL over the turns `r` of each: what stands after HAVING."""

from __future__ import annotations

from uuid import UUID

from apps.trace_store.filters.fields import Items
from apps.trace_store.filters.nodes import And, Comparison, Condition, Expression, Not, Or, Some
from apps.trace_store.store.filtering.comparisons import compared
from apps.trace_store.store.filtering.fragments import Sql, both, either, neither
from apps.trace_store.store.filtering.items import feedback_met
from apps.tracing.errors import FilterError

_STARTED = "coalesce(r.start_time, r.placed_at)"
_FIRST, _LAST = "r.placed_at, r.id", "r.placed_at DESC, r.id DESC"
_LATENCY = f"extract(epoch FROM r.end_time - {_STARTED})"
_SUMMED = (
    *("total_tokens", "prompt_tokens", "completion_tokens"),
    *("total_cost", "prompt_cost", "completion_cost"),
)
_COLUMNS = {
    "thread_id": "r.thread_key",
    "count": "count(*)",
    "num_errored_turns": "count(r.error_preview)",
    "min_start_time": f"min({_STARTED})",
    "max_start_time": f"max({_STARTED})",
    "last_end_time": "max(r.end_time)",
    "latency_p50": f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {_LATENCY})",
    "latency_p99": f"percentile_cont(0.99) WITHIN GROUP (ORDER BY {_LATENCY})",
    # A turn has the sum of what is below it, once that is settled.
    **{name: f"sum(coalesce(r.sum_{name}, r.{name}))" for name in _SUMMED},
    "first_trace_id": f"(array_agg(r.trace_id ORDER BY {_FIRST}))[1]",
    "last_trace_id": f"(array_agg(r.trace_id ORDER BY {_LAST}))[1]",
    "first_inputs": f"(array_agg(r.inputs_preview ORDER BY {_FIRST}))[1]",
    "last_outputs": f"(array_agg(r.outputs_preview ORDER BY {_LAST}))[1]",
    "last_error": f"(array_agg(r.error_preview ORDER BY {_LAST}))[1]",
}


def compile_having(workspace_id: UUID, expression: Expression) -> Sql:
    """The threads that the filter is true of, where turns are grouped by project and thread."""
    match expression:
        case And(parts):
            return both([compile_having(workspace_id, part) for part in parts])
        case Or(parts):
            return either([compile_having(workspace_id, part) for part in parts])
        case Not(part):
            return neither(compile_having(workspace_id, part))
        case Some(items=Items.FEEDBACK):
            met = feedback_met(expression)
            return Sql(
                "EXISTS (SELECT FROM feedback_feedback f WHERE f.workspace_id = %s"
                f" AND f.project_id = r.project_id AND f.thread_key = r.thread_key AND {met.text})",
                (workspace_id, *met.values),
            )
        case Condition() if expression.comparison is not Comparison.SEARCH:
            return compared(expression, f"({_COLUMNS[expression.field.name]})")
    raise FilterError("Threads as a whole are not searched: `filter` searches their turns.")
