"""Conditions on the thread of a run."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from apps.trace_store.postgres.filtering.compiler import compile_having
from apps.trace_store.postgres.reading.rows import MAX_CLOCK_SKEW
from apps.trace_store.types import RunQuery

_STARTED = "coalesce(r.start_time, r.partition_time)"


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
    bounds = (
        (">=", query.started_from, -MAX_CLOCK_SKEW),
        ("<=", query.started_until, MAX_CLOCK_SKEW),
    )
    for sign, time, skew in bounds:
        if time is not None:
            where += f" AND {_STARTED} {sign} %s AND r.partition_time {sign} %s"
            values += [time, time + skew]
    these = (
        f"SELECT r.project_id, r.thread_key FROM trace_store_run r WHERE {where}"
        f" GROUP BY r.project_id, r.thread_key HAVING {having.text}"
    )
    yield f"(r.project_id, r.thread_key) IN ({these})", [*values, *having.values]
