"""Counts of runs by project and hour: appended with each write and removal, compacted later."""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core.connections import raw_cursor, sql
from apps.trace_store.run_writes import RunWrite
from apps.trace_store.types import ProjectStats, RunKey

_COMPACTED_HOURS = 1000

# One statement writes both tables, which saves every request a round trip.
_RECORD_WRITE = """
WITH counted AS (
    INSERT INTO trace_store_runcount
        (created_at, workspace_id, hour, project_id, runs, traces, merged, last_start_time)
    SELECT %b, %b, date_trunc('hour', %b::timestamptz, 'UTC'), added.*
    FROM unnest(%b::uuid[], %b::int8[], %b::int8[], %b::int8[], %b::timestamptz[]) AS added
)
INSERT INTO trace_store_pending_run (workspace_id, run_ids, project_ids, trace_ids, partition_time)
VALUES (%b, %b::uuid[], %b::uuid[], %b::uuid[], %b::timestamptz[])
"""


@dataclass(slots=True)
class _ProjectCount:
    """The runs that one request wrote to one project."""

    last_start_time: datetime
    runs: int = 0
    traces: int = 0
    merged: int = 0

    def add(self, partition_time: datetime, *, is_new: bool, is_root: bool) -> None:
        self.last_start_time = max(self.last_start_time, partition_time)
        if is_new:
            self.runs += 1
            self.traces += is_root
        else:
            self.merged += 1


def record_write(
    workspace_id: UUID, runs: Sequence[RunWrite], new_keys: Collection[RunKey]
) -> None:
    """Append one count per project and one entry for post-processing, without waiting for locks."""
    counts: dict[UUID, _ProjectCount] = {}
    identities = [run.identity for run in runs]
    for run in runs:
        _, project_id, partition_time = run.key
        is_root = run.identity["parent_run_id"] is None
        count = counts.setdefault(project_id, _ProjectCount(partition_time))
        count.add(partition_time, is_new=run.key in new_keys, is_root=is_root)
    rows = list(counts.values())
    count_columns = [
        list(counts),
        [row.runs for row in rows],
        [row.traces for row in rows],
        [row.merged for row in rows],
        [row.last_start_time for row in rows],
    ]
    names = ("id", "project_id", "trace_id", "partition_time")
    run_columns = [[identity[name] for identity in identities] for name in names]
    now = identities[0]["received_at"]
    with raw_cursor() as cursor:
        params = [now, workspace_id, now, *count_columns, workspace_id, *run_columns]
        cursor.execute(_RECORD_WRITE, params, prepare=True)


def record_removal(relation: str, params: Mapping[str, Any]) -> None:
    """Count the removed runs of the relation; see `hooks.register_removal`."""
    with raw_cursor() as cursor:
        cursor.execute(
            sql(
                "INSERT INTO trace_store_runcount (created_at, workspace_id, project_id, hour,"
                " runs, traces, merged, removed_runs, removed_traces)"
                " SELECT now(), workspace_id, project_id, date_trunc('hour', now(), 'UTC'), 0, 0,"
                f" 0, count(*), count(*) FILTER (WHERE is_root) FROM {relation}"
                " GROUP BY workspace_id, project_id"
            ),
            params,
        )


def project_stats(
    workspace_id: UUID, project_ids: Collection[UUID], *, since: datetime | None = None
) -> Mapping[UUID, ProjectStats]:
    """Return the counts of each project since that hour; every project has an entry."""
    result = dict.fromkeys(project_ids, ProjectStats())
    values: list[Any] = [workspace_id, list(project_ids)]
    hour_condition = ""
    if since is not None:
        hour_condition = "AND hour >= date_trunc('hour', %s::timestamptz, 'UTC')"
        values.append(since)
    statement = (
        "SELECT project_id, sum(runs - removed_runs)::bigint,"
        " sum(traces - removed_traces)::bigint, max(last_start_time)"
        " FROM trace_store_runcount WHERE workspace_id = %s AND project_id = ANY(%s)"
        f" {hour_condition} GROUP BY project_id"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        result |= {row[0]: ProjectStats(*row[1:]) for row in cursor}
    return result


@transaction.atomic
def compact() -> None:
    """Merge the counts of each project and past hour into one row; sums are unchanged."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('trace_store.run_counts', 0))"
        )
        cursor.execute(
            """
            WITH ripe AS (
                SELECT workspace_id, project_id, hour FROM trace_store_runcount
                WHERE hour < date_trunc('hour', now() - interval '10 minutes')
                GROUP BY 1, 2, 3 HAVING count(*) > 1 LIMIT %s
            ), compacted AS (
                DELETE FROM trace_store_runcount c USING ripe r
                WHERE c.workspace_id = r.workspace_id AND c.project_id = r.project_id
                  AND c.hour = r.hour
                RETURNING c.*
            )
            INSERT INTO trace_store_runcount
                (created_at, workspace_id, project_id, hour, runs, traces, merged,
                 removed_runs, removed_traces, last_start_time)
            SELECT now(), workspace_id, project_id, hour, sum(runs), sum(traces), sum(merged),
                   sum(removed_runs), sum(removed_traces), max(last_start_time)
            FROM compacted GROUP BY workspace_id, project_id, hour
            """,
            [_COMPACTED_HOURS],
        )
