"""Reads the metadata values of the runs of a project."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.core.connections import raw_cursor

_SAMPLED_RUNS = 10_000
"""Only the newest runs are sampled."""
_SAMPLED_TRACES = 100_000
_MAX_VALUES = 1000


def find_frequent_values(
    workspace_id: UUID,
    project_id: UUID,
    *,
    keys: Collection[str] | None,
    since: datetime | None,
    values_per_key: int,
) -> dict[str, list[str]]:
    """Return the most frequent values by key, the most frequent key first."""
    with raw_cursor() as cursor:
        cursor.execute(
            """
            WITH sampled AS (
                SELECT metadata FROM trace_store_run
                WHERE workspace_id = %(workspace)s AND project_id = %(project)s
                  AND (%(since)s::timestamptz IS NULL OR partition_time >= %(since)s)
                ORDER BY partition_time DESC, id DESC LIMIT %(sampled)s
            ), counted AS (
                SELECT pair.key, pair.value, count(*) AS n
                FROM sampled, jsonb_each_text(metadata) AS pair
                WHERE pair.value IS NOT NULL
                  AND (%(keys)s::text[] IS NULL OR pair.key = ANY(%(keys)s))
                GROUP BY 1, 2
            ), ranked AS (
                SELECT key, value, n, sum(n) OVER (PARTITION BY key) AS key_count,
                       row_number() OVER (PARTITION BY key ORDER BY n DESC, value) AS rank
                FROM counted
            )
            SELECT key, value FROM ranked WHERE rank <= %(values_per_key)s
            ORDER BY key_count DESC, key, rank
            """,
            {
                "workspace": workspace_id,
                "project": project_id,
                "since": since,
                "sampled": _SAMPLED_RUNS,
                "keys": None if keys is None else list(keys),
                "values_per_key": values_per_key,
            },
        )
        result: dict[str, list[str]] = {}
        for key, value in cursor:
            result.setdefault(key, []).append(value)
    return result


def find_values_with_first_start(
    workspace_id: UUID, project_id: UUID, key: str
) -> list[tuple[str, datetime]]:
    """Return the values of the key in traces, as text, with the first start time of each.

    The newest value comes first. Only the newest traces are read, up to a large limit.
    """
    with raw_cursor() as cursor:
        cursor.execute(
            """
            SELECT value, min(began) FROM (
                SELECT metadata ->> %(key)s AS value, coalesce(start_time, partition_time) AS began
                FROM trace_store_run
                WHERE workspace_id = %(workspace)s AND project_id = %(project)s
                  AND parent_run_id IS NULL AND metadata ? %(key)s
                ORDER BY partition_time DESC, id DESC LIMIT %(sampled)s
            ) AS sampled
            WHERE value <> '' GROUP BY value ORDER BY 2 DESC, 1 LIMIT %(max_values)s
            """,
            {
                "workspace": workspace_id,
                "project": project_id,
                "key": key,
                "sampled": _SAMPLED_TRACES,
                "max_values": _MAX_VALUES,
            },
        )
        return list(cursor.fetchall())
