"""Removal of expired traces; see docs/adr/0020-retention.md.

Daily partitions without retained traces are dropped; from the others, expired traces are deleted
by project.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from apps.organizations.models import Workspace
from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.partitions import Partition
from apps.trace_store.postgres.payload_storage import offloaded_paths_sql
from apps.trace_store.postgres.rollups.intervals import EARLIEST_TIME
from apps.trace_store.postgres.writing import delete_runs, expired_traces
from apps.trace_store.types import RetentionCutoffs
from apps.tracing.models import Project, TraceTier
from apps.tracing.services import deletion, retention

log = logging.getLogger(__name__)
_TRACES_PER_BATCH = 200
_DAY = timedelta(days=1)


def expire(now: datetime | None = None) -> None:
    """Remove expired traces. Idempotent, safe to run concurrently and to interrupt."""
    now = now or timezone.now()
    by_workspace = dict(_cutoffs(now))
    all_cutoffs = [cutoff for cutoffs in by_workspace.values() for cutoff in cutoffs]
    _drop_expired_partitions(all_cutoffs, now)
    for workspace_id, cutoffs in by_workspace.items():
        for cutoff in cutoffs:
            _expire_project(workspace_id, cutoff)
    deletion.remove_pending_files()
    _delete_stale_retained_traces()


def _cutoffs(now: datetime) -> Iterator[tuple[UUID, list[RetentionCutoffs]]]:
    for workspace in Workspace.objects.all():
        lives = retention.policy_for_workspace(workspace)
        long, short = lives.cutoff(TraceTier.LONG, now), lives.cutoff(TraceTier.SHORT, now)
        projects = Project.objects.for_workspace(workspace).present()
        yield (
            workspace.pk,
            [
                RetentionCutoffs(
                    project_id, long if days is None else now - days * _DAY, short, since
                )
                for project_id, days, since in projects.values_list(
                    "pk", "long_days", "short_since"
                )
            ],
        )


def _drop_expired_partitions(cutoffs: list[RetentionCutoffs], now: datetime) -> None:
    latest = [cutoff.latest for cutoff in cutoffs if cutoff.latest is not None]
    if not latest:
        return
    for day in partitions.list_partitions():
        if day.ends_at > max(latest):
            break
        try:
            _drop_partition(day, cutoffs)
        except DatabaseError:  # a long transaction locks the partition: retry on the next run
            log.exception("a day of runs could not be dropped: %s", day.suffix)
    try:
        partitions.merge_empty_partitions(max(latest))
    except DatabaseError:
        log.exception("empty days could not be made one")


@transaction.atomic
def _drop_partition(day: Partition, cutoffs: list[RetentionCutoffs]) -> None:
    if partitions.is_empty(day):
        return
    partitions.lock_partition(day)
    if not expired_traces.is_fully_expired(day, cutoffs):
        return
    with connection.cursor() as cursor:
        cursor.execute(
            _ROWS_OF_PARTITION_SQL.format(
                day=day.table, payloads=day.payload_table, paths=offloaded_paths_sql("p")
            )
        )
        for table in ("trace_store_rollup_interval", "trace_store_rollup"):
            cursor.execute(
                f"DELETE FROM {table} WHERE begins_at >= %s AND begins_at < %s",  # noqa: S608  (constant table names)
                [day.begins_at or EARLIEST_TIME, day.ends_at],
            )
        cursor.execute(
            "DELETE FROM trace_store_thread WHERE last_start >= %s AND last_start < %s",
            [day.begins_at or EARLIEST_TIME, day.ends_at],
        )
    partitions.truncate_partition(day)


_ROWS_OF_PARTITION_SQL = """
DELETE FROM feedback_feedback f USING "{day}" r
WHERE f.workspace_id = r.workspace_id AND f.run_id = r.id;

DELETE FROM tracing_share s USING "{day}" r
WHERE s.workspace_id = r.workspace_id AND s.project_id = r.project_id
  AND s.trace_id = r.trace_id AND r.parent_run_id IS NULL;

DELETE FROM tracing_retainedtrace k USING "{day}" r
WHERE k.workspace_id = r.workspace_id AND k.trace_id = r.trace_id AND r.parent_run_id IS NULL;

INSERT INTO tracing_pendingfiledeletion (created_at, workspace_id, run_id, path)
SELECT now(), r.workspace_id, r.id, file.value ->> 'path'
FROM "{day}" r, jsonb_each(r.attachments) AS file(key, value)
WHERE r.attachments IS NOT NULL;

INSERT INTO tracing_pendingfiledeletion (created_at, workspace_id, run_id, path)
SELECT now(), p.workspace_id, p.id, unnest({paths}) FROM "{payloads}" p;

INSERT INTO tracing_runcount
    (created_at, workspace_id, project_id, hour, runs, traces, merged,
     removed_runs, removed_traces)
SELECT now(), workspace_id, project_id, date_trunc('hour', now(), 'UTC'), 0, 0, 0,
       count(*), count(*) FILTER (WHERE parent_run_id IS NULL)
FROM "{day}" GROUP BY workspace_id, project_id;
"""
"""Delete the rows related to a partition's runs."""


def _expire_project(workspace_id: UUID, cutoffs: RetentionCutoffs) -> None:
    for find in (expired_traces.find_expired_traces, expired_traces.find_expired_orphans):
        while trace_ids := find(workspace_id, cutoffs, limit=_TRACES_PER_BATCH):
            if not _remove_traces(workspace_id, cutoffs.project_id, trace_ids):
                break  # another worker has the lock


def _remove_traces(workspace_id: UUID, project_id: UUID, trace_ids: list[UUID]) -> int:
    removed = 0
    while True:
        with transaction.atomic():
            batch = delete_runs.delete_trace_runs(workspace_id, project_id, trace_ids)
            deletion.remove_related_rows(workspace_id, batch)
        removed += len(batch)
        if len(batch) < delete_runs.BATCH_SIZE:
            return removed


def _delete_stale_retained_traces() -> None:
    """Delete upgrades of traces that were removed or never received."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            DELETE FROM tracing_retainedtrace k
            WHERE created_at < now() - interval '2 days' AND NOT EXISTS (
                SELECT FROM trace_store_run r
                WHERE r.workspace_id = k.workspace_id AND r.trace_id = k.trace_id)
            """
        )
