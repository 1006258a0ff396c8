"""Feedback on the runs of any query, in sums."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from apps.feedback.services import score_stats
from apps.feedback.services.score_stats import MOST_COMMENTS, FeedbackStats
from apps.trace_store import store
from apps.trace_store.store import RunQuery
from apps.trace_store.store.rollup_dimensions import bounded

LOOKED_AT = 1000
"""Of a query with more than bounds of time, feedback is looked up for so many runs, the newest."""


def of_query(workspace_id: UUID, query: RunQuery) -> FeedbackStats:
    """What was said about the runs of the query."""
    query = bounded(query)
    if _is_plain(query) and query.project_ids is not None:
        of_each = score_stats.of_runs_in_projects(
            workspace_id,
            query.project_ids,
            started_from=query.started_from,
            started_until=query.started_until,
            roots_only=query.is_root is True,
        )
        return merged(of_each.values())
    page = store.runs.query(workspace_id, query, limit=LOOKED_AT)
    return merged(score_stats.of_runs(workspace_id, [run.row.id for run in page.runs]).values())


def _is_plain(query: RunQuery) -> bool:
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


def merged(many: Iterable[FeedbackStats]) -> FeedbackStats:
    """The statistics of all of them together, key by key."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for by_name in many:
        for key, one in by_name.items():
            by_key.setdefault(key, []).append(one)
    return {key: ones[0] if len(ones) == 1 else _sum(ones) for key, ones in by_key.items()}


def _sum(ones: list[dict[str, Any]]) -> dict[str, Any]:
    scored = [one for one in ones if one["avg"] is not None]
    count = sum(one["n"] for one in scored)
    mean = sum(one["avg"] * one["n"] for one in scored) / count if count else None
    values: Counter[str] = Counter()
    for one in ones:
        values.update(one["values"])
    comments = [text for one in ones for text in one["comments"] or ()]
    return {
        "n": count or sum(one["n"] for one in ones),
        "avg": mean,
        "stdev": _deviation(scored, count, mean),
        "min": min((one["min"] for one in scored), default=None),
        "max": max((one["max"] for one in scored), default=None),
        "errors": sum(one["errors"] for one in ones),
        "values": dict(values),
        "comments": comments[:MOST_COMMENTS],
        "sources": sorted({source for one in ones for source in one["sources"] or ()}),
        "contains_thread_feedback": any(one["contains_thread_feedback"] for one in ones),
        "show_feedback_arrow": any(one["show_feedback_arrow"] for one in ones),
    }


def _deviation(scored: list[dict[str, Any]], count: int, mean: float | None) -> float | None:
    """Of the whole sample, from the deviations and averages of its parts."""
    if count < 2 or mean is None:
        return None
    squares = sum(
        (one["stdev"] or 0) ** 2 * (one["n"] - 1) + one["n"] * (one["avg"] - mean) ** 2
        for one in scored
    )
    return math.sqrt(squares / (count - 1))
