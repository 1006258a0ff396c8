"""Compiles conditions on single-valued fields of a run."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from apps.trace_store.filters.nodes import Comparison, Condition, JsonObject, Values
from apps.trace_store.filters.reference import compare_values
from apps.trace_store.filters.sql import (
    CompileTarget,
    SqlBounds,
    SqlCondition,
    all_of_sql,
    any_of_sql,
    compare_sql,
    exact_bounds,
    negate,
    upper_bound,
)
from apps.trace_store.postgres.reading.rows import partition_lower_bound, partition_upper_bound
from apps.trace_store.run_status import CONDITIONS, is_failed_sql

_START_TIME = "coalesce({t}.start_time, {t}.partition_time)"
_COLUMNS = {
    "id": "{t}.id",
    "trace_id": "{t}.trace_id",
    "parent_run_id": "{t}.parent_run_id",
    "session_id": "{t}.project_id",
    "reference_example_id": "{t}.reference_example_id",
    # An update without its create has no name and type.
    "name": "coalesce({t}.name, '')",
    "run_type": "coalesce({t}.run_type, 'chain')",
    "dotted_order": "{t}.dotted_order",
    "model": "{t}.model",
    # Each segment has 58 characters plus a dot.
    "execution_order": "((length({t}.dotted_order) + 1) / 59)",
    "start_time": _START_TIME,
    "end_time": "{t}.end_time",
    "first_token_time": "{t}.first_token_time",
    "latency": f"extract(epoch FROM {{t}}.end_time - {_START_TIME})",
    "first_token_latency": f"extract(epoch FROM {{t}}.first_token_time - {_START_TIME})",
}
_USAGE = {
    *("total_tokens", "prompt_tokens", "completion_tokens"),
    *("total_cost", "prompt_cost", "completion_cost"),
}
_CASES: Mapping[str, Mapping[str | bool, str]] = {
    "status": {str(status): text for status, text in CONDITIONS.items()},
    "is_root": {True: "{t}.parent_run_id IS NULL", False: "{t}.parent_run_id IS NOT NULL"},
}
"""Enumerated values as the conditions that partial indexes use."""
_CONTENT = {
    "": "true",
    "name": "true",
    "error": "{t}.error_preview IS NOT NULL",
    "metadata": "{t}.metadata <> '{{}}'",
    "inputs": "{t}.inputs_preview IS NOT NULL",
    "outputs": "{t}.outputs_preview IS NOT NULL",
}
"""The condition under which there is content to search."""


def compile_column(over: CompileTarget, condition: Condition) -> SqlBounds:
    name = condition.field.name
    if condition.comparison is Comparison.SEARCH:
        return upper_bound(_CONTENT[name].format(t=over.table))
    if name in _CASES:
        return _compile_cases(over, condition)
    if name in _USAGE:
        return _compile_usage(over, condition)
    compile_field = _COMPILERS.get(name)
    if compile_field is not None:
        return compile_field(over, condition)
    result = compare_sql(condition, _COLUMNS[name].format(t=over.table))
    if name == "start_time":
        result = all_of_sql(
            [result, *_partition_bounds(condition.comparison, condition.value, over.table)]
        )
    return SqlBounds(result, result)


def _compile_cases(over: CompileTarget, condition: Condition) -> SqlBounds:
    result = any_of_sql(
        [
            SqlCondition(text.format(t=over.table))
            for value, text in _CASES[condition.field.name].items()
            if compare_values(value, condition.comparison, condition.value)
        ]
    )
    return SqlBounds(result, result)


def _compile_usage(over: CompileTarget, condition: Condition) -> SqlBounds:
    """Compare the own usage of a model call, and the stored total of any other processed run."""
    name = condition.field.name
    processed = compare_sql(condition, f"coalesce({over.table}.sum_{name}, {over.table}.{name})")
    if over.as_processed:
        return SqlBounds(processed, processed)
    pending = SqlCondition(
        f"{over.table}.run_type IS DISTINCT FROM 'llm' AND {over.table}.trace_id IN"
        " (SELECT unnest(trace_ids) FROM trace_store_pending_run WHERE workspace_id = %s)",
        (over.workspace_id,),
    )
    return SqlBounds(any_of_sql([processed, pending]), all_of_sql([processed, negate(pending)]))


def _partition_bounds(comparison: Comparison, value: Values, table: str) -> list[SqlCondition]:
    """Bounds of the partition time that the condition implies, so that partitions are pruned."""
    values = value if isinstance(value, tuple) else [value]
    times = [item for item in values if isinstance(item, datetime)]
    if not times:
        return []
    bounds = []
    if comparison not in {Comparison.LESS, Comparison.LESS_OR_EQUAL}:
        bound = partition_lower_bound(min(times))
        bounds.append(SqlCondition(f"{table}.partition_time >= %s", (bound,)))
    if comparison not in {Comparison.GREATER, Comparison.GREATER_OR_EQUAL}:
        bound = partition_upper_bound(max(times))
        bounds.append(SqlCondition(f"{table}.partition_time <= %s", (bound,)))
    return bounds


def _compile_dataset(over: CompileTarget, condition: Condition) -> SqlBounds:
    result = compare_sql(condition, "p.reference_dataset_id")
    return exact_bounds(
        f"{over.table}.project_id IN (SELECT p.id FROM tracing_project p"
        f" WHERE p.workspace_id = %s AND {result.text})",
        over.workspace_id,
        *result.values,
    )


def _compile_error(over: CompileTarget, condition: Condition) -> SqlBounds:
    if condition.comparison is Comparison.PRESENT:
        return exact_bounds(is_failed_sql(over.table))
    return upper_bound(f"{over.table}.error_preview IS NOT NULL")


def _compile_payload(over: CompileTarget, condition: Condition) -> SqlBounds:
    return exact_bounds(f"{over.table}.{condition.field.name}_preview IS NOT NULL")


def _compile_thread(over: CompileTarget, condition: Condition) -> SqlBounds:
    key = f"{over.table}.thread_key"
    if condition.comparison is Comparison.EQUAL:
        # The index of turns stores digests, because thread keys may be long.
        return exact_bounds(
            f"md5({key}) = md5(%s) AND {key} = %s", condition.value, condition.value
        )
    result = compare_sql(condition, key)
    return SqlBounds(result, result)


def _compile_tags(over: CompileTarget, condition: Condition) -> SqlBounds:
    match condition.comparison:
        case Comparison.PRESENT:
            return exact_bounds(f"cardinality({over.table}.tags) > 0")
        case Comparison.EQUAL:
            return exact_bounds(f"%s = ANY({over.table}.tags)", condition.value)
        case Comparison.AMONG if isinstance(condition.value, tuple):
            return exact_bounds(f"{over.table}.tags && %s::text[]", list(condition.value))
    result = compare_sql(condition, "tag")
    return exact_bounds(
        f"EXISTS (SELECT FROM unnest({over.table}.tags) tag WHERE {result.text})", *result.values
    )


def _compile_metadata(over: CompileTarget, condition: Condition) -> SqlBounds:
    match condition.comparison, condition.value:
        case Comparison.EXISTS, key:
            return exact_bounds(f"{over.table}.metadata ? %s", key)
        case Comparison.CONTAINS, JsonObject(text):
            return exact_bounds(f"{over.table}.metadata @> %s::jsonb", text)
    return exact_bounds(f"{over.table}.metadata <> '{{}}'")


_COMPILERS: dict[str, Callable[[CompileTarget, Condition], SqlBounds]] = {
    "reference_dataset_id": _compile_dataset,
    "error": _compile_error,
    "inputs": _compile_payload,
    "outputs": _compile_payload,
    "thread_id": _compile_thread,
    "tags": _compile_tags,
    "metadata": _compile_metadata,
}
