"""Removal of expired runs; see docs/adr/0020-retention.md.

A day whose runs have all expired is truncated; expired traces of other days are deleted project by
project.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import DatabaseError, transaction

from apps.core.connections import raw_cursor, sql
from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.partitions import Partition
from apps.trace_store.postgres.payload_storage import offloaded_paths_sql
from apps.trace_store.postgres.rollups.intervals import EARLIEST_TIME
from apps.trace_store.postgres.writing import delete_runs
from apps.trace_store.types import RetentionCutoffs

log = logging.getLogger(__name__)

# A run starts at most this much later than it is received: `dotted_order.latest_start_time`.
_MAX_EARLY_RECEIPT = timedelta(days=1)
_TRACES_PER_BATCH = 200


def expire(cutoffs: Mapping[UUID, Sequence[RetentionCutoffs]]) -> None:
    """Remove the runs that have expired by the cutoffs of each workspace's projects.

    Idempotent, safe to run concurrently and to interrupt.
    """
    _drop_expired_partitions([item for items in cutoffs.values() for item in items])
    for workspace_id, items in cutoffs.items():
        for item in items:
            _expire_project(workspace_id, item)
    delete_runs.delete_pending_files()
    _delete_stale_retained_traces()


def retain_traces(workspace_id: UUID, trace_ids: Collection[UUID]) -> None:
    """Keep the traces until the long cutoff of their project. Safe to repeat."""
    # Sorted, so that concurrent transactions with the same traces cannot deadlock.
    with raw_cursor() as cursor:
        cursor.execute(
            "INSERT INTO trace_store_retainedtrace (id, created_at, workspace_id, trace_id)"
            " SELECT gen_random_uuid(), now(), %s, traces.id"
            " FROM unnest(%s::uuid[]) AS traces(id) ON CONFLICT DO NOTHING",
            [workspace_id, sorted(set(trace_ids))],
        )


def _drop_expired_partitions(cutoffs: Sequence[RetentionCutoffs]) -> None:
    latest = max((item.latest for item in cutoffs if item.latest is not None), default=None)
    if latest is None:
        return
    for day in partitions.list_partitions():
        if day.ends_at > latest:
            break
        try:
            _drop_partition(day, cutoffs)
        except DatabaseError:  # a long transaction locks the partition: retry on the next run
            log.exception("the partition %s of runs could not be truncated", day.suffix)
    try:
        partitions.merge_empty_partitions(latest)
    except DatabaseError:
        log.exception("empty partitions of runs could not be merged")


@transaction.atomic
def _drop_partition(day: Partition, cutoffs: Sequence[RetentionCutoffs]) -> None:
    if partitions.is_empty(day):
        return
    partitions.lock_partition(day)
    if not _is_fully_expired(day, cutoffs):
        return
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "INSERT INTO trace_store_pendingfiledeletion"
                " (created_at, workspace_id, run_id, path)"
                " SELECT now(), r.workspace_id, r.id, file.value ->> 'path'"
                f' FROM "{day.table}" r, jsonb_each(r.attachments) AS file(key, value)'
                " WHERE r.attachments IS NOT NULL UNION ALL"
                f" SELECT now(), p.workspace_id, p.id, unnest({offloaded_paths_sql('p')})"
                f' FROM "{day.payload_table}" p'
            )
        )
    delete_runs.delete_related_rows(
        "(SELECT workspace_id, id, project_id, trace_id, parent_run_id IS NULL AS is_root"
        f' FROM "{day.table}")',
        {},
    )
    begin = day.begins_at or EARLIEST_TIME
    with raw_cursor() as cursor:
        for table, column in (
            ("trace_store_rollup_interval", "begins_at"),
            ("trace_store_rollup", "begins_at"),
            ("trace_store_thread", "last_start"),
        ):
            cursor.execute(
                sql(f"DELETE FROM {table} WHERE {column} >= %s AND {column} < %s"),
                [begin, day.ends_at],
            )
        cursor.execute(
            sql(
                f'DELETE FROM trace_store_run_key k USING "{day.table}" r'
                " WHERE k.workspace_id = r.workspace_id AND k.id = r.id"
                " AND k.project_id = r.project_id AND k.partition_time = r.partition_time"
            )
        )
    partitions.truncate_partition(day)


def _expire_project(workspace_id: UUID, cutoffs: RetentionCutoffs) -> None:
    for find_expired in (_find_expired_traces, _find_expired_orphans):
        while trace_ids := find_expired(workspace_id, cutoffs, limit=_TRACES_PER_BATCH):
            if not _delete_traces(workspace_id, cutoffs.project_id, trace_ids):
                break  # another worker has the lock


def _delete_traces(workspace_id: UUID, project_id: UUID, trace_ids: Collection[UUID]) -> int:
    removed = 0
    while True:
        with transaction.atomic():
            count = delete_runs.delete_trace_runs(workspace_id, project_id, trace_ids)
        removed += count
        if count < delete_runs.BATCH_SIZE:
            return removed


def _delete_stale_retained_traces() -> None:
    """Delete upgrades of traces that were removed or never received."""
    with raw_cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM trace_store_retainedtrace k
            WHERE created_at < now() - interval '2 days' AND NOT EXISTS (
                SELECT FROM trace_store_run r
                WHERE r.workspace_id = k.workspace_id AND r.trace_id = k.trace_id)
            """
        )


_EXPIRED_SQL = """(
    r.received_at < cutoffs.long
    OR (r.received_at >= cutoffs.short_since AND r.received_at < cutoffs.short AND NOT EXISTS (
        SELECT FROM trace_store_retainedtrace k
        WHERE k.workspace_id = r.workspace_id AND k.trace_id = r.trace_id)))"""
_CUTOFFS_SQL = (
    "unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[])"
    " AS cutoffs(project_id, long, short, short_since)"
)


def _find_expired_traces(
    workspace_id: UUID, cutoffs: RetentionCutoffs, *, limit: int
) -> list[UUID]:
    """Expired traces of the project, oldest root first; the root determines the age of a trace."""
    return _select_expired(workspace_id, cutoffs, "r.parent_run_id IS NULL", limit)


def _find_expired_orphans(
    workspace_id: UUID, cutoffs: RetentionCutoffs, *, limit: int
) -> list[UUID]:
    """Traces without a stored root that have an expired run."""
    rootless = (
        "r.parent_run_id IS NOT NULL AND NOT EXISTS ("
        " SELECT FROM trace_store_run root WHERE root.workspace_id = r.workspace_id"
        " AND root.trace_id = r.trace_id AND root.project_id = r.project_id"
        " AND root.parent_run_id IS NULL)"
    )
    return _select_expired(workspace_id, cutoffs, rootless, limit)


def _select_expired(
    workspace_id: UUID, cutoffs: RetentionCutoffs, condition: str, limit: int
) -> list[UUID]:
    if cutoffs.latest is None:
        return []
    statement = (
        f"SELECT r.trace_id FROM {_CUTOFFS_SQL}"
        " JOIN trace_store_run r ON r.project_id = cutoffs.project_id"
        f" WHERE r.workspace_id = %s AND r.project_id = %s AND r.partition_time < %s"
        f" AND {condition} AND {_EXPIRED_SQL} ORDER BY r.partition_time, r.id LIMIT %s"
    )
    bounds = [workspace_id, cutoffs.project_id, cutoffs.latest + _MAX_EARLY_RECEIPT, limit]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*_cutoff_columns([cutoffs]), *bounds])
        return list(dict.fromkeys(trace_id for (trace_id,) in cursor))


def _is_fully_expired(day: Partition, cutoffs: Sequence[RetentionCutoffs]) -> bool:
    """Whether all runs of the day have expired; runs of unknown projects count as expired."""
    statement = (
        f'SELECT NOT EXISTS (SELECT FROM "{day.table}" r JOIN {_CUTOFFS_SQL}'
        f" ON cutoffs.project_id = r.project_id WHERE {_EXPIRED_SQL} IS NOT TRUE)"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), _cutoff_columns(cutoffs))
        (result,) = cursor.fetchone() or (False,)
        return bool(result)


def _cutoff_columns(cutoffs: Sequence[RetentionCutoffs]) -> list[list[object]]:
    return [
        [cutoff.project_id for cutoff in cutoffs],
        [cutoff.long for cutoff in cutoffs],
        [cutoff.short for cutoff in cutoffs],
        [cutoff.short_since for cutoff in cutoffs],
    ]
