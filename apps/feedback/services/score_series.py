"""Feedback statistics by time bucket, for the runs of a query."""

# ruff: noqa: S608  (statements contain only names of this module; values are parameters)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.core.json import loads
from apps.trace_store import RunQuery, run_store

_TICK = timedelta(microseconds=1)
BucketStats = dict[str, Any]
"""`n`, `sum`, `avg`, `min` and `max` of the scores, `values` (count by label), `count` (all)."""


def by_bucket(
    workspace_id: UUID, query: RunQuery, edges: Sequence[datetime], key: str | None
) -> Mapping[tuple[int, str], BucketStats]:
    """Return statistics by bucket index and key, for one key or all keys.

    The start time of the run selects the bucket. The bounds of the query may cut off parts of the
    first and last bucket.
    """
    if not query.project_ids:
        return {}
    begin = max(edges[0], query.started_from or edges[0])
    last = min(edges[-1] - _TICK, query.started_until or edges[-1])
    where = [
        "f.workspace_id = %s",
        "f.project_id = ANY(%s)",
        "f.run_id IS NOT NULL",
        "f.comparative_experiment_id IS NULL",
        "f.start_time >= %s AND f.start_time <= %s",
    ]
    values: list[Any] = [workspace_id, list(query.project_ids), begin, last]
    if key is not None:
        where.append("f.key = %s")
        values.append(key)
    if any(item is not None for item in (query.where, query.where_root, query.where_any)):
        bounded_query = replace(query, started_from=begin, started_until=last)
        condition, params = run_store.membership_sql(workspace_id, bounded_query, "f.run_id")
        where.append(condition)
        values += params
    elif query.is_root:
        where.append("f.is_root")
    bucket = "width_bucket(f.start_time, %s::timestamptz[]) - 1"
    statement = (
        f"WITH selected AS (SELECT {bucket} AS bucket, f.key, f.score, f.label"
        f" FROM feedback_feedback f WHERE {' AND '.join(where)}), labels AS ("
        " SELECT bucket, key, jsonb_object_agg(label, frequency) AS labels FROM ("
        " SELECT bucket, key, label, count(*) AS frequency FROM selected"
        " WHERE label IS NOT NULL GROUP BY 1, 2, 3) label_counts"
        " GROUP BY bucket, key)"
        " SELECT p.bucket, p.key, count(p.score), sum(p.score), avg(p.score), min(p.score),"
        " max(p.score), l.labels::text, count(*)"
        " FROM selected p LEFT JOIN labels l USING (bucket, key)"
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
