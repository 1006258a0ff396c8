"""Compiles the conditions of a query on a run's row to SQL over `trace_store_run r`."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.dotted_order import MAX_CLOCK_SKEW
from apps.trace_store.filters import Expression, all_of
from apps.trace_store.filters.query_analysis import (
    extract_time_bounds,
    required_value,
    split_conjunction,
)
from apps.trace_store.filters.terms import ROOT, status_label, type_label
from apps.trace_store.postgres.filtering import CompiledFilter, compile_where, compile_where_root
from apps.trace_store.postgres.filtering.compiler import compile_having
from apps.trace_store.postgres.filtering.terms import (
    RequiredTerms,
    required_labels,
    required_terms,
)
from apps.trace_store.postgres.reading.locations import estimate_start_range, locate_runs
from apps.trace_store.postgres.reading.pending_deletions import exclude_deleted
from apps.trace_store.postgres.reading.rows import (
    partition_lower_bound,
    partition_upper_bound,
)
from apps.trace_store.postgres.reading.term_conditions import term_conditions
from apps.trace_store.postgres.rollups.intervals import (
    EARLIEST_TIME,
    LATEST_TIME,
    Resolution,
    find_misplaced_runs,
)
from apps.trace_store.run_status import Status, is_failed_sql
from apps.trace_store.types import RunQuery

Condition = tuple[str, Sequence[Any]]
_STARTED = "coalesce(r.start_time, r.partition_time)"


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A compiled query: its conditions and bounds of the partition time.

    The scan adds the conditions on projects and position.
    """

    workspace_id: UUID
    query: RunQuery
    conditions: Sequence[Condition]
    where: CompiledFilter | None
    since: datetime | None
    until: datetime | None
    has_ids: bool
    """Whether ids select the runs: they are few, and no ordered scan is needed."""
    needs_sort: bool = False
    """Whether the runs are selected by trace or thread and sorted afterwards."""


def prepare_query(workspace_id: UUID, query: RunQuery) -> PreparedQuery:
    if query.is_root and query.where_root is not None:
        # The run is the root, so the filter on the root applies to the run.
        combined = all_of([query.where, query.where_root])
        query = replace(query, where=combined, where_root=None)
    query = extract_time_bounds(query)
    conditions = [
        *_conditions(query),
        *trace_conditions(workspace_id, query),
        *thread_conditions(workspace_id, query),
        *([] if query.include_deleted else [exclude_deleted(workspace_id)]),
    ]
    since, until = _partition_range(workspace_id, query)
    for condition, begin, end in _id_conditions(workspace_id, query):
        conditions.append(condition)
        since = latest(since, begin)
        until = _earliest(until, end)
    where = None
    if query.where is not None:
        where = compile_where(workspace_id, query.where, table="r")
        if not where.is_exact and _is_all_processed(workspace_id):
            # Runs that arrive after this check are treated as received after the response.
            where = compile_where(workspace_id, query.where, table="r", as_processed=True)
        conditions.append((where.sql, where.values))
    ids = (query.run_ids, query.trace_id, query.parent_run_id, query.reference_example_ids)
    needs_sort = _is_of_one_thread(query) or any(text == TRACES_SQL for text, _ in conditions)
    has_ids = needs_sort or any(value is not None for value in ids)
    return PreparedQuery(workspace_id, query, conditions, where, since, until, has_ids, needs_sort)


def query_labels(query: RunQuery) -> Sequence[frozenset[str]]:
    """The labels that the runs of the query have, by its filter and its other conditions."""
    labels = (
        ROOT if query.is_root else None,
        None if query.run_type is None else type_label(query.run_type),
        status_label(Status.ERROR) if query.has_error else None,
    )
    return [*(frozenset({item}) for item in labels if item), *required_labels(query.where)]


def _is_all_processed(workspace_id: UUID) -> bool:
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT NOT EXISTS (SELECT FROM trace_store_pending_run WHERE workspace_id = %s)",
            [workspace_id],
        )
        return cursor.fetchone() == (True,)


def _is_of_one_thread(query: RunQuery) -> bool:
    """Whether the query selects turns of one thread, which have an index."""
    parts = () if query.where is None else split_conjunction(query.where)
    is_named = any(required_value(part, "thread_id") is not None for part in parts)
    return is_named and query.is_root is True and query.project_ids is not None


def _partition_range(
    workspace_id: UUID, query: RunQuery
) -> tuple[datetime | None, datetime | None]:
    """The range of partition times of runs with a start time in the query's range."""
    begin, end = query.started_from, query.started_until
    if begin is None and end is None:
        return None, None
    begin = None if begin is None else max(begin.astimezone(UTC), EARLIEST_TIME)
    end = None if end is None else min(end.astimezone(UTC), LATEST_TIME)
    since = None if begin is None else partition_lower_bound(begin)
    until = None if end is None else partition_upper_bound(end)
    if not query.project_ids:
        return since, until
    start_range = (begin, None if end is None else end + timedelta.resolution)
    misplaced_runs = find_misplaced_runs(
        workspace_id, query.project_ids, partition_range=(since, until), start_range=start_range
    )
    if misplaced_runs is None:
        return since, until
    misplaced_times = [partition_time for partition_time, _ in misplaced_runs]
    if begin is not None:
        since = min([Resolution.QUARTER.floor(begin), *misplaced_times])
    if end is not None:
        last = Resolution.QUARTER.floor(end) + Resolution.QUARTER.width - timedelta.resolution
        until = max([last, *misplaced_times])
    return since, until


def _conditions(query: RunQuery) -> Iterator[Condition]:
    if query.reference_example_ids is not None:
        yield "r.reference_example_id = ANY(%s)", [list(query.reference_example_ids)]
    if query.run_type is not None:
        yield "coalesce(r.run_type, 'chain') = %s", [query.run_type]
    if query.is_root is not None:
        yield f"r.parent_run_id IS {'' if query.is_root else 'NOT '}NULL", []
    if query.has_error is not None:
        yield f"{'' if query.has_error else 'NOT '}{is_failed_sql('r')}", []
    if query.started_from is not None:
        yield f"{_STARTED} >= %s", [query.started_from]
    if query.started_until is not None:
        yield f"{_STARTED} <= %s", [query.started_until]


def _id_conditions(
    workspace_id: UUID, query: RunQuery
) -> Iterator[tuple[Condition, datetime | None, datetime | None]]:
    """Yield conditions by id, each with the range of partition times of the selected runs."""
    if query.run_ids is not None:
        begin, end = _range_of_runs(workspace_id, query.run_ids)
        yield ("r.id = ANY(%s)", [list(query.run_ids)]), begin, end
    if query.trace_id is not None:
        yield ("r.trace_id = %s", [query.trace_id]), None, None
    if query.parent_run_id is not None:
        yield ("r.parent_run_id = %s", [query.parent_run_id]), None, None
        # Children have no index by parent; they are in the parent's trace.
        if parent := locate_runs(workspace_id, [query.parent_run_id]).get(query.parent_run_id):
            yield (
                ("r.trace_id = %s", [parent.position.trace_id]),
                parent.position.partition_time - MAX_CLOCK_SKEW,
                None,
            )


def _range_of_runs(
    workspace_id: UUID, run_ids: Sequence[UUID]
) -> tuple[datetime, datetime] | tuple[None, None]:
    """The range of partition times that the ids imply, if all stored runs are in it."""
    estimate = estimate_start_range(run_ids)
    if estimate is None:
        return None, None
    locations = locate_runs(workspace_id, run_ids)
    is_complete = all(
        run_id in locations
        and estimate[0] <= locations[run_id].position.partition_time <= estimate[1]
        for run_id in run_ids
    )
    return estimate if is_complete else (None, None)


def latest(value: datetime | None, other: datetime | None) -> datetime | None:
    """The later of two lower bounds, either of which may be open."""
    return max((time for time in (value, other) if time is not None), default=None)


def _earliest(value: datetime | None, other: datetime | None) -> datetime | None:
    return min((time for time in (value, other) if time is not None), default=None)


MAX_INDEXED_TRACES = 1_000
"""With more traces from the index, scanning the runs finds a page sooner."""

TRACES_SQL = "r.trace_id = ANY(%s)"


def trace_conditions(workspace_id: UUID, query: RunQuery) -> Iterator[Condition]:
    """Yield necessary conditions on the trace; `PostFilter` evaluates what they leave open."""
    for where in (query.where_root, query.where_any):
        traces = (
            None if where is None else _candidate_traces(workspace_id, where, query.project_ids)
        )
        if traces is not None:
            yield TRACES_SQL, [traces]
    if query.where_root is not None:
        compiled = compile_where_root(workspace_id, query.where_root, table="r", one_by_one=True)
        yield compiled.sql, compiled.values
    # `PostFilter` checks `where_any` for many runs at once, because the runs of a trace span days.


def _candidate_traces(
    workspace_id: UUID, where: Expression, project_ids: Sequence[UUID] | None
) -> list[UUID] | None:
    """The traces that may have a matching run; None if they may be many."""
    terms = required_terms(where)
    if terms is None:
        return None
    # Read pending runs first, so that runs processed in between are found twice, not missed.
    pending = _pending_traces(workspace_id)
    if len(pending) > MAX_INDEXED_TRACES:
        return None
    indexed = _indexed_traces(workspace_id, terms, project_ids)
    return None if len(indexed) > MAX_INDEXED_TRACES else list({*pending, *indexed})


def _pending_traces(workspace_id: UUID) -> list[UUID]:
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "SELECT DISTINCT k FROM trace_store_pending_run CROSS JOIN unnest(trace_ids) AS k"
                f" WHERE workspace_id = %s LIMIT {MAX_INDEXED_TRACES + 1}"
            ),
            [workspace_id],
        )
        return [row[0] for row in cursor]


def _indexed_traces(
    workspace_id: UUID, terms: RequiredTerms, project_ids: Sequence[UUID] | None
) -> list[UUID]:
    """The traces of runs with these terms, at most `MAX_INDEXED_TRACES + 1`."""
    conditions: list[Condition] = [
        ("t.workspace_id = %s", [workspace_id]),
        *term_conditions(workspace_id, terms),
    ]
    if project_ids is not None:
        conditions.append(("t.project_id = ANY(%s)", [list(project_ids)]))
    where = " AND ".join(f"({text})" for text, _ in conditions)
    statement = (
        "SELECT r.trace_id FROM (SELECT t.id, t.project_id, t.partition_time FROM"
        " trace_store_run_terms t"
        f" WHERE {where} LIMIT {MAX_INDEXED_TRACES + 1}) t"
        " JOIN trace_store_run r"
        " ON r.workspace_id = %s AND r.id = t.id AND r.project_id = t.project_id"
        " AND r.partition_time = t.partition_time"
    )
    with raw_cursor() as cursor:
        values = [value for _, part in conditions for value in part]
        cursor.execute(sql(statement), [*values, workspace_id])
        return [row[0] for row in cursor]


def thread_conditions(workspace_id: UUID, query: RunQuery) -> Iterator[tuple[str, list[Any]]]:
    """Select runs by aggregates over the turns of their thread in the query's projects and time."""
    if query.where_thread is None:
        return
    having = compile_having(workspace_id, query.where_thread)
    where = "r.workspace_id = %s AND r.thread_key IS NOT NULL AND r.parent_run_id IS NULL"
    values: list[Any] = [workspace_id]
    if query.project_ids is not None:
        where += " AND r.project_id = ANY(%s)"
        values.append(list(query.project_ids))
    if query.started_from is not None:
        where += f" AND {_STARTED} >= %s AND r.partition_time >= %s"
        values += [query.started_from, partition_lower_bound(query.started_from)]
    if query.started_until is not None:
        where += f" AND {_STARTED} <= %s AND r.partition_time <= %s"
        values += [query.started_until, partition_upper_bound(query.started_until)]
    threads = (
        f"SELECT r.project_id, r.thread_key FROM trace_store_run r WHERE {where}"
        f" GROUP BY r.project_id, r.thread_key HAVING {having.text}"
    )
    yield f"(r.project_id, r.thread_key) IN ({threads})", [*values, *having.values]
