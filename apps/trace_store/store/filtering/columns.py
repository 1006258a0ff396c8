"""Conditions on what a run has one of."""

# ruff: noqa: S608  (statements are made of this package's own names; values go beside them)

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from apps.trace_store.filters.nodes import Comparison, Condition, JsonObject, Values
from apps.trace_store.filters.reference import meets
from apps.trace_store.store.filtering.comparisons import compared
from apps.trace_store.store.filtering.fragments import (
    Bounds,
    Over,
    Sql,
    at_most,
    both,
    either,
    exactly,
    neither,
)
from apps.trace_store.store.rows import SKEW

_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_BEGAN = "coalesce({t}.start_time, {t}.placed_at)"
_COLUMNS = {
    "id": "{t}.id",
    "trace_id": "{t}.trace_id",
    "parent_run_id": "{t}.parent_run_id",
    "session_id": "{t}.project_id",
    "reference_example_id": "{t}.reference_example_id",
    # Until its beginning comes, an update stands for the run.
    "name": "coalesce({t}.name, '')",
    "run_type": "coalesce({t}.run_type, 'chain')",
    "dotted_order": "{t}.dotted_order",
    "model": "{t}.model",
    # Each segment has 58 characters, and a dot between two.
    "execution_order": "((length({t}.dotted_order) + 1) / 59)",
    "start_time": _BEGAN,
    "end_time": "{t}.end_time",
    "first_token_time": "{t}.first_token_time",
    "latency": f"extract(epoch FROM {{t}}.end_time - {_BEGAN})",
    "first_token_latency": f"extract(epoch FROM {{t}}.first_token_time - {_BEGAN})",
}
_USAGE = {
    *("total_tokens", "prompt_tokens", "completion_tokens"),
    *("total_cost", "prompt_cost", "completion_cost"),
}
_CASES: Mapping[str, Mapping[str | bool, str]] = {
    "status": {
        "error": "{t}.error_preview IS NOT NULL",
        "pending": "{t}.error_preview IS NULL AND {t}.end_time IS NULL",
        "success": "{t}.error_preview IS NULL AND {t}.end_time IS NOT NULL",
    },
    "is_root": {True: "{t}.parent_run_id IS NULL", False: "{t}.parent_run_id IS NOT NULL"},
}
"""Fields of few values, in words that indexes of the table have."""
_CONTENT = {
    "": "true",
    "name": "true",
    "error": "{t}.error_preview IS NOT NULL",
    "metadata": "{t}.metadata <> '{{}}'",
    "inputs": "{t}.inputs_preview IS NOT NULL",
    "outputs": "{t}.outputs_preview IS NOT NULL",
}
"""Where there is something to search."""


def on_column(over: Over, condition: Condition) -> Bounds:
    name = condition.field.name
    if condition.comparison is Comparison.SEARCH:
        return at_most(_CONTENT[name].format(t=over.table))
    if name in _CASES:
        return _of_cases(over, condition)
    if name in _USAGE:
        return _of_usage(over, condition)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(over, condition)
    found = compared(condition, _COLUMNS[name].format(t=over.table))
    if name == "start_time":
        found = both([found, *_placed(condition.comparison, condition.value, over.table)])
    return Bounds(found, found)


def _of_cases(over: Over, condition: Condition) -> Bounds:
    found = either(
        [
            Sql(text.format(t=over.table))
            for value, text in _CASES[condition.field.name].items()
            if meets(value, condition.comparison, condition.value)
        ]
    )
    return Bounds(found, found)


def _of_usage(over: Over, condition: Condition) -> Bounds:
    """A model's call speaks for itself; what is above has its sum, once that is settled."""
    name = condition.field.name
    settled = compared(condition, f"coalesce({over.table}.sum_{name}, {over.table}.{name})")
    if over.as_settled:
        return Bounds(settled, settled)
    unsettled = Sql(
        f"{over.table}.run_type IS DISTINCT FROM 'llm' AND {over.table}.trace_id IN"
        " (SELECT unnest(trace_ids) FROM tracing_unsettled WHERE workspace_id = %s)",
        (over.workspace_id,),
    )
    return Bounds(either([settled, unsettled]), both([settled, neither(unsettled)]))


def _placed(comparison: Comparison, value: Values, table: str) -> list[Sql]:
    """What follows for the place, by which partitions are left out."""
    times = [one for one in (value if isinstance(value, tuple) else [value]) if one is not None]
    known = [one for one in times if isinstance(one, datetime)]
    if not known:
        return []
    found = []
    if comparison not in {Comparison.LESS, Comparison.AT_MOST}:
        found.append(Sql(f"{table}.placed_at >= %s", (_moved(min(known), -SKEW),)))
    if comparison not in {Comparison.GREATER, Comparison.AT_LEAST}:
        found.append(Sql(f"{table}.placed_at <= %s", (_moved(max(known), SKEW),)))
    return found


def _moved(time: datetime, by: timedelta) -> datetime:
    try:
        return time + by
    except OverflowError:
        return _EARLIEST if by < timedelta(0) else _LATEST


def _on_dataset(over: Over, condition: Condition) -> Bounds:
    found = compared(condition, "p.reference_dataset_id")
    return exactly(
        f"{over.table}.project_id IN (SELECT p.id FROM tracing_project p"
        f" WHERE p.workspace_id = %s AND {found.text})",
        over.workspace_id,
        *found.values,
    )


def _on_error(over: Over, condition: Condition) -> Bounds:
    text = f"{over.table}.error_preview IS NOT NULL"
    return exactly(text) if condition.comparison is Comparison.PRESENT else at_most(text)


def _on_payload(over: Over, condition: Condition) -> Bounds:
    return exactly(f"{over.table}.{condition.field.name}_preview IS NOT NULL")


def _on_thread(over: Over, condition: Condition) -> Bounds:
    key = f"{over.table}.thread_key"
    if condition.comparison is Comparison.EQUAL:
        # The index of turns has keys by their digests: they may be long.
        return exactly(f"md5({key}) = md5(%s) AND {key} = %s", condition.value, condition.value)
    found = compared(condition, key)
    return Bounds(found, found)


def _on_tags(over: Over, condition: Condition) -> Bounds:
    match condition.comparison:
        case Comparison.PRESENT:
            return exactly(f"cardinality({over.table}.tags) > 0")
        case Comparison.EQUAL:
            return exactly(f"%s = ANY({over.table}.tags)", condition.value)
        case Comparison.AMONG if isinstance(condition.value, tuple):
            return exactly(f"{over.table}.tags && %s::text[]", list(condition.value))
    found = compared(condition, "tag")
    return exactly(
        f"EXISTS (SELECT FROM unnest({over.table}.tags) tag WHERE {found.text})", *found.values
    )


def _on_metadata(over: Over, condition: Condition) -> Bounds:
    match condition.comparison, condition.value:
        case Comparison.EXISTS, key:
            return exactly(f"{over.table}.metadata ? %s", key)
        case Comparison.CONTAINS, JsonObject(text):
            return exactly(f"{over.table}.metadata @> %s::jsonb", text)
    return exactly(f"{over.table}.metadata <> '{{}}'")


_SPECIAL: dict[str, Callable[[Over, Condition], Bounds]] = {
    "reference_dataset_id": _on_dataset,
    "error": _on_error,
    "inputs": _on_payload,
    "outputs": _on_payload,
    "thread_id": _on_thread,
    "tags": _on_tags,
    "metadata": _on_metadata,
}
