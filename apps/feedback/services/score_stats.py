"""Feedback in sums, key by key, as `feedback_stats` on the wire has it.

Each function answers with one query, however many runs are on the page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.core.json import loads
from apps.trace_store.store.raw import raw_cursor, sql

FeedbackStats = dict[str, dict[str, Any]]
"""By key: `n` (numeric scores; where there are none, values), `avg`, `stdev` (of a sample), `min`,
`max`, `errors`, `values` (how often each label), `comments` (the newest), `sources` (the kinds),
`contains_thread_feedback`, `show_feedback_arrow` (whether the key says which way is better)."""

MOST_LABELS = 100
MOST_COMMENTS = 10


def of_runs(workspace_id: UUID, run_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Of each run what was said about it; runs without feedback are not in the answer."""
    return _stats(workspace_id, "run_id", "run_id = ANY(%s)", [list(run_ids)])


def of_traces(workspace_id: UUID, trace_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Of each trace what was said about any of its runs."""
    return _stats(workspace_id, "trace_id", "trace_id = ANY(%s)", [list(trace_ids)])


def of_threads(
    workspace_id: UUID, project_id: UUID, thread_keys: Collection[str]
) -> Mapping[str, FeedbackStats]:
    """Of each thread what was said about it as a whole or about a run in one of its traces."""
    return _stats(
        workspace_id,
        "thread_key",
        "project_id = %s AND thread_key = ANY(%s)",
        [project_id, list(thread_keys)],
    )


def of_projects(workspace_id: UUID, project_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Of each project what was said about itself, not about its runs (`session_feedback_stats`)."""
    return _stats(
        workspace_id,
        "project_id",
        "project_id = ANY(%s) AND run_id IS NULL",
        [list(project_ids)],
    )


def of_runs_in_projects(
    workspace_id: UUID,
    project_ids: Collection[UUID],
    *,
    started_from: datetime | None = None,
    started_until: datetime | None = None,
    roots_only: bool = False,
) -> Mapping[UUID, FeedbackStats]:
    """Of each project what was said about its runs that started in that time (`feedback_stats`).

    Without comments: it is answered from an index alone, since there may be millions of rows.
    """
    if not project_ids:
        return {}
    conditions = ["workspace_id = %s", "project_id = ANY(%s)", "run_id IS NOT NULL"]
    values: list[Any] = [workspace_id, list(project_ids)]
    for name, moment in ((">=", started_from), ("<=", started_until)):
        if moment is not None:
            conditions.append(f"start_time {name} %s")
            values.append(moment)
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
            ) counted WHERE place <= {MOST_LABELS} GROUP BY subject, key
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
            ) counted WHERE place <= {MOST_LABELS} GROUP BY subject, key
        ), comments AS (
            SELECT subject, key, array_agg(comment ORDER BY place) AS comments
            FROM (
                SELECT subject, key, comment, row_number() OVER (
                    PARTITION BY subject, key ORDER BY created_at DESC) AS place
                FROM picked WHERE comment <> ''
            ) newest WHERE place <= {MOST_COMMENTS} GROUP BY subject, key
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
    found: dict[Any, FeedbackStats] = {}
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        for subject, key, *rest in cursor:
            found.setdefault(subject, {})[key] = _shown(_Row(*rest))
    return found


def _shown(row: _Row) -> dict[str, Any]:
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
