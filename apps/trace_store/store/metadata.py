"""What the metadata of a project's runs holds."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.trace_store.store.raw import raw_cursor

_LOOKED_AT = 10_000
"""The newest runs stand for all of them."""
_TRACES_LOOKED_AT = 100_000
_MOST_VALUES = 1000


def most_frequent(
    workspace_id: UUID,
    project_id: UUID,
    *,
    keys: Collection[str] | None,
    since: datetime | None,
    values_per_key: int,
) -> dict[str, list[str]]:
    """By key, the more frequent first, its most frequent values as text."""
    with raw_cursor() as cursor:
        cursor.execute(
            """
            WITH looked_at AS (
                SELECT metadata FROM tracing_run
                WHERE workspace_id = %(workspace)s AND project_id = %(project)s
                  AND (%(since)s::timestamptz IS NULL OR placed_at >= %(since)s)
                ORDER BY placed_at DESC, id DESC LIMIT %(looked_at)s
            ), counted AS (
                SELECT pair.key, pair.value, count(*) AS n
                FROM looked_at, jsonb_each_text(metadata) AS pair
                WHERE pair.value IS NOT NULL
                  AND (%(keys)s::text[] IS NULL OR pair.key = ANY(%(keys)s))
                GROUP BY 1, 2
            ), ranked AS (
                SELECT key, value, n, sum(n) OVER (PARTITION BY key) AS of_key,
                       row_number() OVER (PARTITION BY key ORDER BY n DESC, value) AS rank
                FROM counted
            )
            SELECT key, value FROM ranked WHERE rank <= %(k)s ORDER BY of_key DESC, key, rank
            """,
            {
                "workspace": workspace_id,
                "project": project_id,
                "since": since,
                "looked_at": _LOOKED_AT,
                "keys": None if keys is None else list(keys),
                "k": values_per_key,
            },
        )
        found: dict[str, list[str]] = {}
        for key, value in cursor:
            found.setdefault(key, []).append(value)
    return found


def first_seen(workspace_id: UUID, project_id: UUID, key: str) -> list[tuple[str, datetime]]:
    """The values that traces have under the key, as text, with the start of the first one each.

    The newest first. Traces are looked at from the newest back, a great many but not all.
    """
    with raw_cursor() as cursor:
        cursor.execute(
            """
            SELECT value, min(began) FROM (
                SELECT metadata ->> %(key)s AS value, coalesce(start_time, placed_at) AS began
                FROM tracing_run
                WHERE workspace_id = %(workspace)s AND project_id = %(project)s
                  AND parent_run_id IS NULL AND metadata ? %(key)s
                ORDER BY placed_at DESC, id DESC LIMIT %(looked_at)s
            ) AS looked_at
            WHERE value <> '' GROUP BY value ORDER BY 2 DESC, 1 LIMIT %(most)s
            """,
            {
                "workspace": workspace_id,
                "project": project_id,
                "key": key,
                "looked_at": _TRACES_LOOKED_AT,
                "most": _MOST_VALUES,
            },
        )
        return list(cursor.fetchall())
