"""Feedback statistics by key: `feedback_stats` on the wire.

Each function runs one SQL query, independent of the number of runs. Scores of a comparison of
experiments rank runs against each other, so only functions that name the comparison count them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.core.json import loads
from apps.trace_store import RunQuery, run_store
from apps.trace_store.filters.query_analysis import extract_time_bounds

FeedbackStats = dict[str, dict[str, Any]]
"""By key: `n` (number of scores, or of values without scores), `avg`, `stdev` (of a sample), `min`,
`max`, `errors`, `values` (count by label), `comments` (the newest), `sources` (the types),
`contains_thread_feedback`, `show_feedback_arrow` (whether the config says which scores are better).
"""

MAX_LABELS = 100
MAX_COMMENTS = 10
MAX_QUERIED_RUNS = 1000
"""The maximum number of runs of a filtered query that are evaluated, newest first."""


def by_run(
    workspace_id: UUID, run_ids: Collection[UUID], *, comparison_id: UUID | None = None
) -> Mapping[UUID, FeedbackStats]:
    """Statistics by run; runs without feedback are absent.

    With `comparison_id`, the feedback of that comparison counts, too.
    """
    if not run_ids:
        return {}
    condition, values = "run_id = ANY(%s)", [list(run_ids)]
    if comparison_id is None:
        return _aggregate(workspace_id, "run_id", f"{condition} AND {_OF_NO_COMPARISON}", values)
    condition += f" AND ({_OF_NO_COMPARISON} OR comparative_experiment_id = %s)"
    return _aggregate(workspace_id, "run_id", condition, [*values, comparison_id])


_OF_NO_COMPARISON = "comparative_experiment_id IS NULL"


def by_comparison(
    workspace_id: UUID, comparison_ids: Collection[UUID]
) -> Mapping[UUID, Mapping[UUID, FeedbackStats]]:
    """Statistics by comparison and experiment, of the feedback that names the comparison."""
    stats: dict[UUID, dict[UUID, FeedbackStats]] = {}
    by_pair = _aggregate(
        workspace_id,
        "ARRAY[comparative_experiment_id, project_id]",
        "comparative_experiment_id = ANY(%s) AND project_id IS NOT NULL",
        [list(comparison_ids)],
    )
    for (comparison_id, project_id), feedback in by_pair.items():
        stats.setdefault(comparison_id, {})[project_id] = feedback
    return stats


def by_trace(workspace_id: UUID, trace_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Statistics by trace, over all of its runs."""
    condition = f"trace_id = ANY(%s) AND {_OF_NO_COMPARISON}"
    return _aggregate(workspace_id, "trace_id", condition, [list(trace_ids)])


def by_thread(
    workspace_id: UUID, project_id: UUID, thread_keys: Collection[str]
) -> Mapping[str, FeedbackStats]:
    """Statistics by thread: feedback on the thread itself and on runs of its traces."""
    return _aggregate(
        workspace_id,
        "thread_key",
        f"project_id = %s AND {_OF_NO_COMPARISON} AND thread_key = ANY(%s)",
        [project_id, list(thread_keys)],
    )


def by_project(workspace_id: UUID, project_ids: Collection[UUID]) -> Mapping[UUID, FeedbackStats]:
    """Statistics by project of feedback on the project itself (`session_feedback_stats`)."""
    return _aggregate(
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

    Comments are omitted so that an index-only scan suffices: there may be millions of rows.
    """
    if not project_ids:
        return {}
    conditions = [
        "workspace_id = %s",
        "project_id = ANY(%s)",
        "run_id IS NOT NULL",
        _OF_NO_COMPARISON,
    ]
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
                   GROUPING(label, source_type) AS level, count(*) AS frequency,
                   {_SCORES}
            FROM feedback_feedback WHERE {" AND ".join(conditions)}
            GROUP BY GROUPING SETS ((project_id, key), (project_id, key, label),
                                    (project_id, key, source_type))
        ), labels AS (
            SELECT subject, key, jsonb_object_agg(label, frequency) AS labels,
                   sum(frequency) AS frequency
            FROM (
                SELECT subject, key, label, frequency, row_number() OVER (
                    PARTITION BY subject, key ORDER BY frequency DESC, label) AS rank
                FROM grouped WHERE level = 1 AND label IS NOT NULL
            ) ranked WHERE rank <= {MAX_LABELS} GROUP BY subject, key
        ), sources AS (
            SELECT subject, key, array_agg(source_type ORDER BY source_type) AS sources
            FROM grouped WHERE level = 2 GROUP BY subject, key
        ), scores AS (
            SELECT * FROM grouped JOIN sources USING (subject, key) WHERE level = 3
        )
        SELECT subject, scores.key, n, avg, stdev, min_score, max_score, errors, sources, false,
               labels.labels::text, labels.frequency, NULL, {_HAS_DIRECTION}
        FROM scores
        LEFT JOIN labels USING (subject, key)
        {_CONFIG}
    """  # noqa: S608  (this module's own names)
    return _fetch_stats(statement, [*values, workspace_id])


_SCORES = (
    "count(score) AS n, avg(score) AS avg, stddev_samp(score) AS stdev, min(score) AS min_score,"
    " max(score) AS max_score, count(*) FILTER (WHERE is_error) AS errors"
)
_HAS_DIRECTION = "config.is_lower_score_better IS NOT NULL"
_CONFIG = (
    "LEFT JOIN feedback_feedbackconfig config"
    " ON config.workspace_id = %s AND config.key = scores.key ORDER BY subject, scores.key"
)


def _aggregate(
    workspace_id: UUID, subject: str, condition: str, values: list[Any]
) -> Mapping[Any, FeedbackStats]:
    if values[-1] == []:
        return {}
    statement = f"""
        WITH selected AS MATERIALIZED (
            SELECT {subject} AS subject, key, score, label, source_type, is_error, is_on_thread,
                   comment, created_at
            FROM feedback_feedback WHERE workspace_id = %s AND {condition}
        ), scores AS (
            SELECT subject, key, {_SCORES}, array_agg(DISTINCT source_type) AS sources,
                   bool_or(is_on_thread) AS is_on_thread
            FROM selected GROUP BY subject, key
        ), labels AS (
            SELECT subject, key, jsonb_object_agg(label, frequency) AS labels,
                   sum(frequency) AS frequency
            FROM (
                SELECT subject, key, label, count(*) AS frequency, row_number() OVER (
                    PARTITION BY subject, key ORDER BY count(*) DESC, label) AS rank
                FROM selected WHERE label IS NOT NULL GROUP BY subject, key, label
            ) ranked WHERE rank <= {MAX_LABELS} GROUP BY subject, key
        ), comments AS (
            SELECT subject, key, array_agg(comment ORDER BY rank) AS comments
            FROM (
                SELECT subject, key, comment, row_number() OVER (
                    PARTITION BY subject, key ORDER BY created_at DESC) AS rank
                FROM selected WHERE comment <> ''
            ) newest WHERE rank <= {MAX_COMMENTS} GROUP BY subject, key
        )
        SELECT subject, scores.key, n, avg, stdev, min_score, max_score, errors, sources,
               is_on_thread, labels.labels::text, labels.frequency, comments, {_HAS_DIRECTION}
        FROM scores
        LEFT JOIN labels USING (subject, key)
        LEFT JOIN comments USING (subject, key)
        {_CONFIG}
    """  # noqa: S608  (this module's own names)
    return _fetch_stats(statement, [workspace_id, *values, workspace_id])


class _Row(NamedTuple):
    n: int
    avg: float | None
    stdev: float | None
    min_score: float | None
    max_score: float | None
    errors: int
    sources: list[str] | None
    is_on_thread: bool
    labels: str | None
    frequency: int | None
    comments: list[str] | None
    has_direction: bool


def _fetch_stats(statement: str, values: list[Any]) -> Mapping[Any, FeedbackStats]:
    stats: dict[Any, FeedbackStats] = {}
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        rows = cursor.fetchall()
    for subject, key, *columns in rows:
        stats.setdefault(_as_key(subject), {})[key] = _stats_json(_Row(*columns))
    return stats


def _as_key(subject: Any) -> Any:
    return tuple(subject) if isinstance(subject, list) else subject


def _stats_json(row: _Row) -> dict[str, Any]:
    return {
        "n": row.n or int(row.frequency or 0),
        "avg": row.avg,
        "stdev": row.stdev,
        "min": row.min_score,
        "max": row.max_score,
        "errors": row.errors,
        "values": loads(row.labels) if row.labels else {},
        "comments": row.comments or [],
        "sources": row.sources or [],
        "contains_thread_feedback": row.is_on_thread,
        "show_feedback_arrow": row.has_direction,
    }


def for_query(workspace_id: UUID, query: RunQuery) -> FeedbackStats:
    """Return the statistics of the runs of the query; with a filter, of its newest 1000 runs."""
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


def merge_stats(all_stats: Iterable[FeedbackStats]) -> FeedbackStats:
    """Combine statistics key by key."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for stats_by_key in all_stats:
        for key, stats in stats_by_key.items():
            by_key.setdefault(key, []).append(stats)
    return {key: parts[0] if len(parts) == 1 else _combine(parts) for key, parts in by_key.items()}


def _combine(parts: list[dict[str, Any]]) -> dict[str, Any]:
    scored = [item for item in parts if item["avg"] is not None]
    count = sum(item["n"] for item in scored)
    mean = sum(item["avg"] * item["n"] for item in scored) / count if count else None
    values: Counter[str] = Counter()
    for item in parts:
        values.update(item["values"])
    comments = [text for item in parts for text in item["comments"] or ()]
    return {
        "n": count or sum(item["n"] for item in parts),
        "avg": mean,
        "stdev": _stdev(scored, count, mean),
        "min": min((item["min"] for item in scored), default=None),
        "max": max((item["max"] for item in scored), default=None),
        "errors": sum(item["errors"] for item in parts),
        "values": dict(values),
        "comments": comments[:MAX_COMMENTS],
        "sources": sorted({source for item in parts for source in item["sources"] or ()}),
        "contains_thread_feedback": any(item["contains_thread_feedback"] for item in parts),
        "show_feedback_arrow": any(item["show_feedback_arrow"] for item in parts),
    }


def _stdev(scored: list[dict[str, Any]], count: int, mean: float | None) -> float | None:
    """Return the deviation of the combined sample from deviations and averages of its parts."""
    if count < 2 or mean is None:
        return None
    squares = sum(
        (item["stdev"] or 0) ** 2 * (item["n"] - 1) + item["n"] * (item["avg"] - mean) ** 2
        for item in scored
    )
    return math.sqrt(squares / (count - 1))
