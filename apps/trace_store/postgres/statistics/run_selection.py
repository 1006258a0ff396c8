"""Resolves a query to exact SQL conditions over `trace_store_run r`."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.postgres.filtering import compile_where, compile_where_any, compile_where_root
from apps.trace_store.postgres.reading.prepared_query import thread_conditions
from apps.trace_store.postgres.reading.rows import partition_lower_bound, partition_upper_bound
from apps.trace_store.postgres.statistics.aggregate_runs import (
    RUN_TYPE_SQL,
    START_TIME_SQL,
    Condition,
)
from apps.trace_store.run_status import is_failed_sql
from apps.trace_store.types import RunQuery, RunRow

if TYPE_CHECKING:
    from apps.trace_store.protocol import RunStore

MAX_POST_FILTERED_RUNS = 5_000
_PAGE = 500
MAX_COUNTED_RUNS = 250_000
"""Limit of runs that are counted without rollups; the result then has `counted_since`."""


class InexactFilter(Exception):
    """SQL alone cannot decide the filter."""


@dataclass(frozen=True, slots=True)
class RunSelection:
    conditions: Sequence[Condition]
    counted_since: datetime | None = None
    """Set if there were too many runs: only those after this partition time are selected."""


def resolve_query(store: RunStore, workspace_id: UUID, query: RunQuery) -> RunSelection:
    """Select the runs of the query, or the newest of them."""
    try:
        conditions = exact_conditions(workspace_id, query)
    except InexactFilter:
        return _select_by_post_filter(store, workspace_id, query)
    cutoff = _count_cutoff(workspace_id, query)
    if cutoff is not None:
        conditions.append(("r.partition_time > %s", [cutoff]))
    return RunSelection(conditions, cutoff)


def membership_sql(
    store: RunStore, workspace_id: UUID, query: RunQuery, run_id: str
) -> tuple[str, list[Any]]:
    """SQL that is true if the column `run_id` names a run of the query, and its parameters."""
    conditions = resolve_query(store, workspace_id, query).conditions
    texts = ("r.workspace_id = %s", f"r.id = {run_id}", *(text for text, _ in conditions))
    values = [workspace_id, *(value for _, params in conditions for value in params)]
    return f"EXISTS (SELECT FROM trace_store_run r WHERE {' AND '.join(texts)})", values


def _select_by_post_filter(store: RunStore, workspace_id: UUID, query: RunQuery) -> RunSelection:
    """Select runs by id after filtering them one by one, because payloads must be read."""
    rows: list[RunRow] = []
    cursor: str | None = None
    while len(rows) < MAX_POST_FILTERED_RUNS:
        page = store.query(workspace_id, query, limit=_PAGE, cursor=cursor)
        rows += [run.row for run in page.runs]
        cursor = page.next_cursor
        if cursor is None:
            break
    times = [row.partition_time for row in rows]
    time_range = [min(times), max(times)] if times else [None, None]
    return RunSelection(
        [
            ("r.id = ANY(%s)", [[row.id for row in rows]]),
            ("r.project_id = ANY(%s)", [list({row.project_id for row in rows})]),
            ("r.partition_time BETWEEN %s AND %s", time_range),
        ],
        min(times) if cursor is not None else None,
    )


def exact_conditions(workspace_id: UUID, query: RunQuery) -> list[Condition]:
    """The necessary and sufficient conditions. Raises `InexactFilter` if SQL cannot decide."""
    return [
        *_column_conditions(query),
        *_filter_conditions(workspace_id, query),
        *thread_conditions(workspace_id, query),
    ]


def _filter_conditions(workspace_id: UUID, query: RunQuery) -> Iterator[Condition]:
    scopes = (
        (query.where, compile_where),
        (query.where_root, compile_where_root),
        (query.where_any, compile_where_any),
    )
    for where, compile_scope in scopes:
        if where is None:
            continue
        compiled = compile_scope(workspace_id, where, table="r", as_processed=True)
        if not compiled.is_exact:
            raise InexactFilter
        yield f"({compiled.sql})", list(compiled.values)


def _column_conditions(query: RunQuery) -> Iterator[Condition]:
    if query.project_ids is not None:
        # Only an equality lets the index provide the order.
        if len(query.project_ids) == 1:
            yield "r.project_id = %s", [query.project_ids[0]]
        else:
            yield "r.project_id = ANY(%s)", [list(query.project_ids)]
    if query.run_ids is not None:
        yield "r.id = ANY(%s)", [list(query.run_ids)]
    if query.trace_id is not None:
        yield "r.trace_id = %s", [query.trace_id]
    if query.parent_run_id is not None:
        yield "r.parent_run_id = %s", [query.parent_run_id]
    if query.reference_example_ids is not None:
        yield "r.reference_example_id = ANY(%s)", [list(query.reference_example_ids)]
    if query.run_type is not None:
        yield f"{RUN_TYPE_SQL} = %s", [query.run_type]
    if query.is_root is not None:
        yield f"r.parent_run_id IS {'' if query.is_root else 'NOT '}NULL", []
    if query.has_error is not None:
        yield f"{'' if query.has_error else 'NOT '}{is_failed_sql('r')}", []
    if query.started_from is not None:
        yield f"{START_TIME_SQL} >= %s", [query.started_from]
        yield "r.partition_time >= %s", [partition_lower_bound(query.started_from)]
    if query.started_until is not None:
        yield f"{START_TIME_SQL} <= %s", [query.started_until]
        yield "r.partition_time <= %s", [partition_upper_bound(query.started_until)]


def _count_cutoff(workspace_id: UUID, query: RunQuery) -> datetime | None:
    """The partition time after which runs are counted; None for all."""
    if query.project_ids is None or query.trace_id is not None or query.run_ids is not None:
        return None
    max_project_runs = max(MAX_COUNTED_RUNS // max(len(query.project_ids), 1), 1)
    cutoffs: list[datetime] = []
    for project_id in query.project_ids:
        conditions: list[Condition] = [
            ("r.workspace_id = %s", [workspace_id]),
            ("r.project_id = %s", [project_id]),
        ]
        if query.is_root:
            conditions.append(("r.parent_run_id IS NULL", []))
        if query.has_error:
            conditions.append((is_failed_sql("r"), []))
        if query.started_from is not None:
            conditions.append(
                ("r.partition_time >= %s", [partition_lower_bound(query.started_from)])
            )
        if query.started_until is not None:
            conditions.append(
                ("r.partition_time <= %s", [partition_upper_bound(query.started_until)])
            )
        where = " AND ".join(condition for condition, _ in conditions)
        values: list[Any] = [value for _, parameters in conditions for value in parameters]
        with raw_cursor() as cursor:
            cursor.execute(
                sql(
                    f"SELECT r.partition_time FROM trace_store_run r WHERE {where}"
                    f" ORDER BY r.partition_time DESC OFFSET {max_project_runs} LIMIT 1"
                ),
                values,
            )
            row = cursor.fetchone()
        if row is not None:
            cutoffs.append(row[0])
    return max(cutoffs, default=None)
