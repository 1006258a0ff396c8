"""Facets: the most frequent values of a query's runs, each with its filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from apps.feedback.services import score_stats
from apps.feedback.services.score_stats import FeedbackStats
from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery
from apps.trace_store.filters import quote

SAMPLE_SIZE = 1000
"""Tags and metadata are sampled from the newest runs; `is_sample` marks them."""
MAX_VALUES = 20
_MAX_VALUE_LENGTH = 200

Facet = dict[str, Any]


def collect_facets(
    workspace_id: UUID, query: RunQuery, feedback: FeedbackStats | None = None
) -> list[Facet]:
    """Return names, run types, errors, tags, metadata and feedback keys by frequency.

    `feedback` are the runs' feedback statistics, if already loaded.
    """
    if feedback is None:
        feedback = score_stats.for_query(workspace_id, query)
    return [
        *_count_values(workspace_id, query, "name", GroupAttribute.NAME),
        *_count_values(workspace_id, query, "run_type", GroupAttribute.RUN_TYPE),
        *_count_values(workspace_id, query, "status", GroupAttribute.STATUS),
        *_sample_runs(workspace_id, query),
        *_feedback_facets(feedback),
    ]


def _count_values(
    workspace_id: UUID, query: RunQuery, key: str, attribute: GroupAttribute
) -> Iterator[Facet]:
    group_by = GroupBy(attribute, max_groups=MAX_VALUES)
    answer = run_store.aggregate(
        workspace_id, MetricsQuery(query=query, group_by=group_by, measures=())
    )
    for value, figures in sorted(
        answer.by_group.items(), key=lambda result: (-result[1].runs, result[0] or "")
    ):
        if value:
            yield _facet(key, value, f"eq({key}, {quote(value)})", figures.runs)


def _sample_runs(workspace_id: UUID, query: RunQuery) -> Iterator[Facet]:
    page = run_store.query(workspace_id, query, limit=SAMPLE_SIZE)
    is_sample = page.next_cursor is not None
    tags: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for run in page.runs:
        tags.update(set(run.row.tags))
        pairs.update(
            (key, text)
            for key, value in run.row.metadata.items()
            if (text := _text(value)) is not None
        )
    for tag, times in tags.most_common(MAX_VALUES):
        yield _facet("tag", tag, f"has(tags, {quote(tag)})", times, is_sample=is_sample)
    kept: Counter[str] = Counter()
    for (key, text), times in pairs.most_common():
        kept[key] += 1
        if kept[key] <= MAX_VALUES and len(kept) <= MAX_VALUES:
            where = f"and(eq(metadata_key, {quote(key)}), eq(metadata_value, {quote(text)}))"
            yield _facet(f"metadata.{key}", text, where, times, is_sample=is_sample)


def _text(value: Any) -> str | None:
    """Metadata values that distinguish runs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str) and 0 < len(str(value)) <= _MAX_VALUE_LENGTH:
        return str(value)
    return None


def _feedback_facets(stats: FeedbackStats) -> Iterator[Facet]:
    for key, result in sorted(stats.items(), key=lambda pair: (-pair[1]["n"], pair[0]))[
        :MAX_VALUES
    ]:
        yield _facet("feedback_key", key, f"eq(feedback_key, {quote(key)})", result["n"])


def _facet(key: str, value: str, query: str, n: int, *, is_sample: bool = False) -> Facet:
    facet = {"key": key, "value": value, "query": query, "n": n}
    return facet | {"is_sample": True} if is_sample else facet
