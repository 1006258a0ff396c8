"""Reads pages of threads, ordered by newest turn, with metrics and previews of their turns."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.aggregation import ThreadPage, ThreadSummary
from apps.trace_store.filters.query_analysis import extract_time_bounds
from apps.trace_store.metrics import ALL_MEASURES
from apps.trace_store.postgres.postprocess import thread_rows
from apps.trace_store.postgres.statistics import aggregate_runs
from apps.trace_store.postgres.statistics.aggregate_runs import (
    AggregationPlan,
    Condition,
    GroupExpression,
)
from apps.trace_store.postgres.statistics.run_selection import exact_conditions, resolve_query
from apps.trace_store.run_status import failure_sql
from apps.trace_store.types import RunQuery

if TYPE_CHECKING:
    from apps.trace_store.protocol import RunStore

_FIRST, _LAST = "r.partition_time, r.id", "r.partition_time DESC, r.id DESC"


class _ThreadPosition(NamedTuple):
    last_start: datetime
    project_id: UUID
    thread_key: str


def query_threads(
    store: RunStore,
    workspace_id: UUID,
    query: RunQuery,
    *,
    offset: int,
    limit: int,
    all_turns: bool,
) -> ThreadPage:
    """Return threads with a matching turn, and metrics of the matching turns.

    With `all_turns`, the metrics cover all turns in the projects and time range of the query.
    """
    query = replace(extract_time_bounds(query), is_root=True)
    if _can_use_thread_rows(query):
        turns = [*exact_conditions(workspace_id, query), (thread_rows.TURN, [])]
        positions, total = _from_thread_rows(workspace_id, query, offset, limit)
    else:
        selection = resolve_query(store, workspace_id, query)
        turns = [*selection.conditions, (thread_rows.TURN, [])]
        positions, total = _from_turns(workspace_id, turns, offset, limit)
    if all_turns:
        unfiltered = replace(query, where=None, where_root=None, where_any=None, where_thread=None)
        turns = [*exact_conditions(workspace_id, unfiltered), (thread_rows.TURN, [])]
    return ThreadPage(_thread_rows(workspace_id, turns, positions), total)


def fetch_thread(
    store: RunStore, workspace_id: UUID, thread_key: str, query: RunQuery
) -> ThreadSummary | None:
    """Return one thread, with metrics of its matching turns."""
    query = replace(extract_time_bounds(query), is_root=True)
    selection = resolve_query(store, workspace_id, query)
    in_thread: Condition = (
        "md5(r.thread_key) = md5(%s) AND r.thread_key = %s",
        [thread_key, thread_key],
    )
    turns = [*selection.conditions, (thread_rows.TURN, []), in_thread]
    positions, _ = _from_turns(workspace_id, turns, 0, 1)
    return next(iter(_thread_rows(workspace_id, turns, positions)), None)


def _can_use_thread_rows(query: RunQuery) -> bool:
    other_conditions = (
        query.run_ids,
        query.trace_id,
        query.parent_run_id,
        query.reference_example_ids,
        query.run_type,
        query.has_error,
        query.where,
        query.where_root,
        query.where_any,
        query.where_thread,
    )
    has_past_end = query.started_until is not None and query.started_until < datetime.now(UTC)
    return (
        query.project_ids is not None
        and not has_past_end
        and all(condition is None for condition in other_conditions)
    )


def _from_thread_rows(
    workspace_id: UUID, query: RunQuery, offset: int, limit: int
) -> tuple[list[_ThreadPosition], int]:
    """Order threads by their stored rows and the pending runs."""
    projects = list(query.project_ids or ())
    pending = {
        (row[0], row[1]): _ThreadPosition(row[3], row[0], row[1])
        for row in thread_rows.pending_threads(workspace_id, projects)
    }
    since = query.started_from
    if since is not None:
        pending = {
            key: position for key, position in pending.items() if position.last_start >= since
        }
    where = "t.workspace_id = %s AND t.project_id = ANY(%s)"
    values: list[Any] = [workspace_id, projects]
    if since is not None:
        where += " AND t.last_start >= %s"
        values.append(since)
    is_pending = "(t.project_id, t.thread_key) IN (SELECT * FROM unnest(%s::uuid[], %s::text[]))"
    keys = [[item[0] for item in pending], [item[1] for item in pending]]
    with raw_cursor() as cursor:
        cursor.execute(sql(f"SELECT count(*) FROM trace_store_thread t WHERE {where}"), values)
        total: int = (cursor.fetchone() or (0,))[0]
        if pending:
            cursor.execute(
                sql(f"SELECT count(*) FROM trace_store_thread t WHERE {where} AND {is_pending}"),
                [*values, *keys],
            )
            total += len(pending) - (cursor.fetchone() or (0,))[0]
        cursor.execute(
            sql(
                "SELECT t.last_start, t.project_id, t.thread_key FROM trace_store_thread t"
                f" WHERE {where} ORDER BY t.last_start DESC LIMIT %s"
            ),
            # Threads with pending runs may be among these rows and move.
            [*values, offset + limit + len(pending)],
        )
        stored = [_ThreadPosition(*row) for row in cursor if (row[1], row[2]) not in pending]
    positions = sorted([*stored, *pending.values()], reverse=True)
    return positions[offset : offset + limit], total


def _from_turns(
    workspace_id: UUID, turns: Sequence[Condition], offset: int, limit: int
) -> tuple[list[_ThreadPosition], int]:
    where = " AND ".join(condition for condition, _ in turns)
    values = [value for _, parameters in turns for value in parameters]
    statement = (
        f"SELECT max({aggregate_runs.START_TIME_SQL}), r.project_id, r.thread_key, count(*) OVER ()"
        f" FROM trace_store_run r WHERE r.workspace_id = %s AND {where}"
        " GROUP BY r.project_id, r.thread_key ORDER BY 1 DESC, 2 DESC, 3 DESC"
    )
    with raw_cursor() as cursor:
        cursor.execute(
            sql(f"{statement} OFFSET %s LIMIT %s"), [workspace_id, *values, offset, limit]
        )
        rows = cursor.fetchall()
        if not rows and offset:
            cursor.execute(sql(f"{statement} LIMIT 1"), [workspace_id, *values])
            return [], (cursor.fetchone() or (0, 0, 0, 0))[3]
    return [_ThreadPosition(*row[:3]) for row in rows], rows[0][3] if rows else 0


def _thread_rows(
    workspace_id: UUID, turns: Sequence[Condition], positions: Sequence[_ThreadPosition]
) -> list[ThreadSummary]:
    if not positions:
        return []
    thread_keys = [position.thread_key for position in positions]
    page_turns: list[Condition] = [
        *turns,
        ("r.project_id = ANY(%s)", [list({position.project_id for position in positions})]),
        ("md5(r.thread_key) = ANY(SELECT md5(unnest(%s::text[])))", [thread_keys]),
        ("r.thread_key = ANY(%s)", [thread_keys]),
    ]
    threads = {
        (thread.project_id, thread.thread_key): thread
        for thread in _first_and_last_turns(workspace_id, page_turns)
    }
    first = min((thread.first_start for thread in threads.values()), default=None)
    aggregation = AggregationPlan(
        workspace_id=workspace_id,
        parts=[page_turns],
        groups=[GroupExpression("r.project_id"), GroupExpression("r.thread_key")],
        measures=ALL_MEASURES,
        of_traces=True,
        quantiles=(0.5, 0.99),
        details=True,
        since=None if first is None else first - aggregate_runs.ANCESTOR_WINDOW,
    )
    metrics_by_thread = dict(aggregate_runs.aggregate_runs(aggregation))
    keys_in_order = [(position.project_id, position.thread_key) for position in positions]
    return [
        replace(threads[key], metrics=metrics_by_thread[key])
        for key in keys_in_order
        if key in threads and key in metrics_by_thread
    ]


def _first_and_last_turns(workspace_id: UUID, turns: Sequence[Condition]) -> list[ThreadSummary]:
    where = " AND ".join(condition for condition, _ in turns)
    values = [value for _, parameters in turns for value in parameters]
    statement = (
        "SELECT r.project_id, r.thread_key,"
        f" min({aggregate_runs.START_TIME_SQL}), max({aggregate_runs.START_TIME_SQL}),"
        " max(r.end_time),"
        f" (array_agg(r.trace_id ORDER BY {_FIRST}))[1],"
        f" (array_agg(r.trace_id ORDER BY {_LAST}))[1],"
        f" (array_agg(r.inputs_preview ORDER BY {_FIRST}))[1],"
        f" (array_agg(r.outputs_preview ORDER BY {_LAST}))[1],"
        f" (array_agg({failure_sql('r')} ORDER BY {_LAST}))[1]"
        f" FROM trace_store_run r WHERE r.workspace_id = %s AND {where}"
        " GROUP BY r.project_id, r.thread_key"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [workspace_id, *values])
        return [
            ThreadSummary(
                project_id=row[0],
                thread_key=row[1],
                first_start=row[2],
                last_start=row[3],
                last_end=row[4],
                first_trace_id=row[5],
                last_trace_id=row[6],
                first_inputs=row[7],
                last_outputs=row[8],
                last_error=row[9],
            )
            for row in cursor
        ]
