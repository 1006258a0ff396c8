"""Feedback statistics on the runs of a query by time bucket."""

# ruff: noqa: S608  (statements contain only names of this module; values are parameters)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.core.json import loads
from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store import RunQuery, run_store
from apps.trace_store.postgres.statistics.run_selection import resolve_query

BucketStats = dict[str, Any]
"""`n`, `sum`, `avg`, `min`, `max` of the scores; `values`: how often each label; `count` of all."""


def by_bucket(
    workspace_id: UUID, query: RunQuery, edges: Sequence[datetime], key: str | None
) -> Mapping[tuple[int, str], BucketStats]:
    """Statistics by bucket and key, of one key or all keys; the start time selects the bucket."""
    if not query.project_ids:
        return {}
    where = [
        "f.workspace_id = %s",
        "f.project_id = ANY(%s)",
        "f.run_id IS NOT NULL",
        "f.start_time >= %s AND f.start_time < %s",
    ]
    values: list[Any] = [workspace_id, list(query.project_ids), edges[0], edges[-1]]
    if key is not None:
        where.append("f.key = %s")
        values.append(key)
    if any(item is not None for item in (query.where, query.where_root, query.where_any)):
        bounds = replace(query, started_from=edges[0], started_until=edges[-1])
        chosen = resolve_query(run_store, workspace_id, bounds)
        conditions = " AND ".join(text for text, _ in chosen.conditions)
        where.append(
            "EXISTS (SELECT FROM trace_store_run r WHERE r.workspace_id = f.workspace_id"
            f" AND r.id = f.run_id AND {conditions})"
        )
        values += [value for _, params in chosen.conditions for value in params]
    elif query.is_root:
        where.append("f.is_root")
    bucket = "width_bucket(f.start_time, %s::timestamptz[]) - 1"
    statement = (
        f"WITH picked AS (SELECT {bucket} AS bucket, f.key, f.score, f.label"
        f" FROM feedback_feedback f WHERE {' AND '.join(where)}), labels AS ("
        " SELECT bucket, key, jsonb_object_agg(label, times) AS labels FROM (SELECT bucket, key,"
        " label, count(*) AS times FROM picked WHERE label IS NOT NULL GROUP BY 1, 2, 3) counted"
        " GROUP BY bucket, key)"
        " SELECT p.bucket, p.key, count(p.score), sum(p.score), avg(p.score), min(p.score),"
        " max(p.score), l.labels::text, count(*)"
        " FROM picked p LEFT JOIN labels l USING (bucket, key)"
        " GROUP BY p.bucket, p.key, l.labels"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [list(edges), *values])
        return {
            (row[0], row[1]): {
                "n": row[2],
                "sum": row[3],
                "avg": row[4],
                "min": row[5],
                "max": row[6],
                "values": loads(row[7] or "{}"),
                "count": row[8],
            }
            for row in cursor
        }
