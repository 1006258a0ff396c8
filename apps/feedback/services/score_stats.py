"""Feedback statistics by key: `feedback_stats` on the wire.

Each function runs one SQL query, whatever the number of runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.core.json import loads
from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters.query_analysis import extract_time_bounds

FeedbackStats = dict[str, dict[str, Any]]
"""By key: `n` (numeric scores; where there are none, values), `avg`, `stdev` (of a sample), `min`,
`max`, `errors`, `values` (how often each label), `comments` (the newest), `sources` (the kinds),
`contains_thread_feedback`, `show_feedback_arrow` (whether the key says which way is better)."""

MAX_LABELS = 100
MAX_COMMENTS = 10
MAX_QUERIED_RUNS = 1000
"""How many runs of a filtered query are considered, newest first."""


def by_run(workspace_id: UUID, run_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Statistics by run; runs without feedback are absent."""
    return _stats(workspace_id, "run_id", "run_id = ANY(%s)", [list(run_ids)])


def by_trace(workspace_id: UUID, trace_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Statistics by trace, over all of its runs."""
    return _stats(workspace_id, "trace_id", "trace_id = ANY(%s)", [list(trace_ids)])


def by_thread(
    workspace_id: UUID, project_id: UUID, thread_keys: Collection[str]
) -> Mapping[str, FeedbackStats]:
    """Statistics by thread: feedback on the thread itself and on runs of its traces."""
    return _stats(
        workspace_id,
        "thread_key",
        "project_id = %s AND thread_key = ANY(%s)",
        [project_id, list(thread_keys)],
    )


def by_project(workspace_id: UUID, project_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Statistics by project of feedback on the project itself (`session_feedback_stats`)."""
    return _stats(
        workspace_id,
        "project_id",
        "project_id = ANY(%s) AND run_id IS NULL",
        [list(project_ids)],
    )


def by_project_runs(
    workspace_id: UUID,
    project_ids: Collection[UUID],
    *,
    started_from: datetime | None = None,
    started_until: datetime | None = None,
    roots_only: bool = False,
) -> Mapping[UUID, FeedbackStats]:
    """Statistics by project of feedback on runs that started in the period (`feedback_stats`).

    Comments are omitted, so that an index-only scan answers it: there may be millions of rows.
    """
    if not project_ids:
        return {}
    conditions = ["workspace_id = %s", "project_id = ANY(%s)", "run_id IS NOT NULL"]
    values: list[Any] = [workspace_id, list(project_ids)]
    for operator, timestamp in ((">=", started_from), ("<=", started_until)):
        if timestamp is not None:
            conditions.append(f"start_time {operator} %s")
            values.append(timestamp)
    if roots_only:
        conditions.append("is_root")
    statement = f"""
        WITH grouped AS MATERIALIZED (
            SELECT project_id AS subject, key, label, source_type,
                   GROUPING(label, source_type) AS level, count(*) AS times,
                   {_SCORES}
            FROM feedback_feedback WHERE {" AND ".join(conditions)}
            GROUP BY GROUPING SETS ((project_id, key), (project_id, key, label),
                                    (project_id, key, source_type))
        ), labels AS (
            SELECT subject, key, jsonb_object_agg(label, times) AS labels, sum(times) AS times
            FROM (
                SELECT subject, key, label, times, row_number() OVER (
                    PARTITION BY subject, key ORDER BY times DESC, label) AS place
                FROM grouped WHERE level = 1 AND label IS NOT NULL
            ) counted WHERE place <= {MAX_LABELS} GROUP BY subject, key
        ), sources AS (
            SELECT subject, key, array_agg(source_type ORDER BY source_type) AS sources
            FROM grouped WHERE level = 2 GROUP BY subject, key
        ), scores AS (
            SELECT * FROM grouped JOIN sources USING (subject, key) WHERE level = 3
        )
        SELECT subject, scores.key, n, avg, stdev, least, most, errors, sources, false,
               labels.labels::text, labels.times, NULL, {_HAS_DIRECTION}
        FROM scores
        LEFT JOIN labels USING (subject, key)
        {_CONFIG}
    """  # noqa: S608  (this module's own names)
    return _read(statement, [*values, workspace_id])


_SCORES = (
    "count(score) AS n, avg(score) AS avg, stddev_samp(score) AS stdev, min(score) AS least,"
    " max(score) AS most, count(*) FILTER (WHERE is_error) AS errors"
)
_HAS_DIRECTION = "config.is_lower_score_better IS NOT NULL"
_CONFIG = (
    "LEFT JOIN feedback_feedbackconfig config"
    " ON config.workspace_id = %s AND config.key = scores.key ORDER BY subject, scores.key"
)


def _stats(
    workspace_id: UUID, subject: str, condition: str, values: list[Any]
) -> Mapping[Any, FeedbackStats]:
    if not values[-1]:
        return {}
    statement = f"""
        WITH picked AS MATERIALIZED (
            SELECT {subject} AS subject, key, score, label, source_type, is_error, is_on_thread,
                   comment, created_at
            FROM feedback_feedback WHERE workspace_id = %s AND {condition}
        ), scores AS (
            SELECT subject, key, {_SCORES}, array_agg(DISTINCT source_type) AS sources,
                   bool_or(is_on_thread) AS is_on_thread
            FROM picked GROUP BY subject, key
        ), labels AS (
            SELECT subject, key, jsonb_object_agg(label, times) AS labels, sum(times) AS times
            FROM (
                SELECT subject, key, label, count(*) AS times, row_number() OVER (
                    PARTITION BY subject, key ORDER BY count(*) DESC, label) AS place
                FROM picked WHERE label IS NOT NULL GROUP BY subject, key, label
            ) counted WHERE place <= {MAX_LABELS} GROUP BY subject, key
        ), comments AS (
            SELECT subject, key, array_agg(comment ORDER BY place) AS comments
            FROM (
                SELECT subject, key, comment, row_number() OVER (
                    PARTITION BY subject, key ORDER BY created_at DESC) AS place
                FROM picked WHERE comment <> ''
            ) newest WHERE place <= {MAX_COMMENTS} GROUP BY subject, key
        )
        SELECT subject, scores.key, n, avg, stdev, least, most, errors, sources, is_on_thread,
               labels.labels::text, labels.times, comments, {_HAS_DIRECTION}
        FROM scores
        LEFT JOIN labels USING (subject, key)
        LEFT JOIN comments USING (subject, key)
        {_CONFIG}
    """  # noqa: S608  (this module's own names)
    return _read(statement, [workspace_id, *values, workspace_id])


class _Row(NamedTuple):
    n: int
    avg: float | None
    stdev: float | None
    least: float | None
    most: float | None
    errors: int
    sources: list[str] | None
    is_on_thread: bool
    labels: str | None
    times: int | None
    comments: list[str] | None
    has_direction: bool


def _read(statement: str, values: list[Any]) -> Mapping[Any, FeedbackStats]:
    stats: dict[Any, FeedbackStats] = {}
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        for subject, key, *rest in cursor:
            stats.setdefault(subject, {})[key] = _render(_Row(*rest))
    return stats


def _render(row: _Row) -> dict[str, Any]:
    return {
        "n": row.n or int(row.times or 0),
        "avg": row.avg,
        "stdev": row.stdev,
        "min": row.least,
        "max": row.most,
        "errors": row.errors,
        "values": loads(row.labels) if row.labels else {},
        "comments": row.comments or [],
        "sources": row.sources or [],
        "contains_thread_feedback": row.is_on_thread,
        "show_feedback_arrow": row.has_direction,
    }


def for_query(workspace_id: UUID, query: RunQuery) -> FeedbackStats:
    """The feedback on the runs of the query; with a filter, on its newest 1000 runs."""
    query = extract_time_bounds(query)
    if _has_only_time_bounds(query) and query.project_ids is not None:
        by_project = by_project_runs(
            workspace_id,
            query.project_ids,
            started_from=query.started_from,
            started_until=query.started_until,
            roots_only=query.is_root is True,
        )
        return merge_stats(by_project.values())
    page = run_store.query(workspace_id, query, limit=MAX_QUERIED_RUNS)
    return merge_stats(by_run(workspace_id, [run.row.id for run in page.runs]).values())


def _has_only_time_bounds(query: RunQuery) -> bool:
    others = (
        query.run_ids,
        query.trace_id,
        query.parent_run_id,
        query.reference_example_ids,
        query.run_type,
        query.has_error,
        query.where,
        query.where_root,
        query.where_any,
    )
    return query.is_root is not False and all(other is None for other in others)


def merge_stats(parts: Iterable[FeedbackStats]) -> FeedbackStats:
    """Combine statistics key by key."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for by_name in parts:
        for key, result in by_name.items():
            by_key.setdefault(key, []).append(result)
    return {key: ones[0] if len(ones) == 1 else _combine(ones) for key, ones in by_key.items()}


def _combine(ones: list[dict[str, Any]]) -> dict[str, Any]:
    scored = [item for item in ones if item["avg"] is not None]
    count = sum(item["n"] for item in scored)
    mean = sum(item["avg"] * item["n"] for item in scored) / count if count else None
    values: Counter[str] = Counter()
    for item in ones:
        values.update(item["values"])
    comments = [text for item in ones for text in item["comments"] or ()]
    return {
        "n": count or sum(item["n"] for item in ones),
        "avg": mean,
        "stdev": _stdev(scored, count, mean),
        "min": min((item["min"] for item in scored), default=None),
        "max": max((item["max"] for item in scored), default=None),
        "errors": sum(item["errors"] for item in ones),
        "values": dict(values),
        "comments": comments[:MAX_COMMENTS],
        "sources": sorted({source for item in ones for source in item["sources"] or ()}),
        "contains_thread_feedback": any(item["contains_thread_feedback"] for item in ones),
        "show_feedback_arrow": any(item["show_feedback_arrow"] for item in ones),
    }


def _stdev(scored: list[dict[str, Any]], count: int, mean: float | None) -> float | None:
    """The deviation of the whole sample, from deviations and averages of its parts."""
    if count < 2 or mean is None:
        return None
    squares = sum(
        (item["stdev"] or 0) ** 2 * (item["n"] - 1) + item["n"] * (item["avg"] - mean) ** 2
        for item in scored
    )
    return math.sqrt(squares / (count - 1))
