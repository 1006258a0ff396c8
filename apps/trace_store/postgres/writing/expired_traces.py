"""Which runs have lived long enough, asked of the stored runs themselves."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.postgres.partitions import Partition
from apps.trace_store.types import RetentionCutoffs

# A run may start this much later than it is received, never more: `latest_placement`.
_MAX_EARLY_START = timedelta(days=1)


_EXPIRED_SQL = """(
    r.received_at < cutoffs.long
    OR (r.received_at >= cutoffs.short_since AND r.received_at < cutoffs.short AND NOT EXISTS (
        SELECT FROM tracing_retainedtrace k
        WHERE k.workspace_id = r.workspace_id AND k.trace_id = r.trace_id)))"""
_CUTOFFS_SQL = (
    "unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[])"
    " AS cutoffs(project_id, long, short, short_since)"
)


def find_expired_traces(workspace_id: UUID, cutoffs: RetentionCutoffs, *, limit: int) -> list[UUID]:
    """Some traces of the project that are due, the oldest first: a trace is as old as its root."""
    return _select_expired(workspace_id, cutoffs, "r.parent_run_id IS NULL", limit)


def find_expired_orphans(
    workspace_id: UUID, cutoffs: RetentionCutoffs, *, limit: int
) -> list[UUID]:
    """Some traces whose root is not there, with a run that is due."""
    rootless = (
        "r.parent_run_id IS NOT NULL AND NOT EXISTS ("
        " SELECT FROM trace_store_run root WHERE root.workspace_id = r.workspace_id"
        " AND root.trace_id = r.trace_id AND root.project_id = r.project_id"
        " AND root.parent_run_id IS NULL)"
    )
    return _select_expired(workspace_id, cutoffs, rootless, limit)


def _select_expired(
    workspace_id: UUID, cutoffs: RetentionCutoffs, which: str, limit: int
) -> list[UUID]:
    if cutoffs.latest is None:
        return []
    statement = (
        f"SELECT r.trace_id FROM {_CUTOFFS_SQL}"
        " JOIN trace_store_run r ON r.project_id = cutoffs.project_id"
        f" WHERE r.workspace_id = %s AND r.project_id = %s AND r.partition_time < %s"
        f" AND {which} AND {_EXPIRED_SQL} ORDER BY r.partition_time, r.id LIMIT %s"
    )
    ending = [workspace_id, cutoffs.project_id, cutoffs.latest + _MAX_EARLY_START, limit]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*_columns([cutoffs]), *ending])
        return list(dict.fromkeys(trace_id for (trace_id,) in cursor))


def is_fully_expired(day: Partition, cutoffs: Sequence[RetentionCutoffs]) -> bool:
    """Whether everything in the day is due; runs of projects that are not named are."""
    statement = (
        f'SELECT NOT EXISTS (SELECT FROM "{day.table}" r JOIN {_CUTOFFS_SQL}'
        f" ON cutoffs.project_id = r.project_id WHERE {_EXPIRED_SQL} IS NOT TRUE)"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), _columns(cutoffs))
        (result,) = cursor.fetchone() or (False,)
        return bool(result)


def _columns(cutoffs: Sequence[RetentionCutoffs]) -> list[list[object]]:
    return [
        [cutoff.project_id for cutoff in cutoffs],
        [cutoff.long for cutoff in cutoffs],
        [cutoff.short for cutoff in cutoffs],
        [cutoff.short_since for cutoff in cutoffs],
    ]
