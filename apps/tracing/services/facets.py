"""The most frequent values of a query's runs, each with the filter that finds its runs."""

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

LOOKED_AT = 1000
"""Tags and metadata are those of the newest runs; `is_sample` says where there are more."""
MOST_VALUES = 20
_LONGEST = 200

Facet = dict[str, Any]


def facets_of(
    workspace_id: UUID, query: RunQuery, feedback: FeedbackStats | None = None
) -> list[Facet]:
    """Names, types, failures, tags, metadata and feedback keys, the most frequent first.

    `feedback` is what was said about the runs, where that is known already.
    """
    if feedback is None:
        feedback = score_stats.for_query(workspace_id, query)
    return [
        *_counted(workspace_id, query, "name", GroupAttribute.NAME),
        *_counted(workspace_id, query, "run_type", GroupAttribute.RUN_TYPE),
        *_counted(workspace_id, query, "status", GroupAttribute.STATUS),
        *_sampled(workspace_id, query),
        *_of_feedback(feedback),
    ]


def _counted(
    workspace_id: UUID, query: RunQuery, key: str, attribute: GroupAttribute
) -> Iterator[Facet]:
    group_by = GroupBy(attribute, max_groups=MOST_VALUES)
    answer = run_store.aggregate(
        workspace_id, MetricsQuery(query=query, group_by=group_by, measures=())
    )
    for value, figures in sorted(
        answer.by_group.items(), key=lambda one: (-one[1].runs, one[0] or "")
    ):
        if value:
            yield _facet(key, value, f"eq({key}, {quote(value)})", figures.runs)


def _sampled(workspace_id: UUID, query: RunQuery) -> Iterator[Facet]:
    page = run_store.query(workspace_id, query, limit=LOOKED_AT)
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
    for tag, times in tags.most_common(MOST_VALUES):
        yield _facet("tag", tag, f"has(tags, {quote(tag)})", times, is_sample=is_sample)
    kept: Counter[str] = Counter()
    for (key, text), times in pairs.most_common():
        kept[key] += 1
        if kept[key] <= MOST_VALUES and len(kept) <= MOST_VALUES:
            where = f"and(eq(metadata_key, {quote(key)}), eq(metadata_value, {quote(text)}))"
            yield _facet(f"metadata.{key}", text, where, times, is_sample=is_sample)


def _text(value: Any) -> str | None:
    """Values that people tell runs apart by."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str) and 0 < len(str(value)) <= _LONGEST:
        return str(value)
    return None


def _of_feedback(stats: FeedbackStats) -> Iterator[Facet]:
    for key, one in sorted(stats.items(), key=lambda pair: (-pair[1]["n"], pair[0]))[:MOST_VALUES]:
        yield _facet("feedback_key", key, f"eq(feedback_key, {quote(key)})", one["n"])


def _facet(key: str, value: str, query: str, n: int, *, is_sample: bool = False) -> Facet:
    facet = {"key": key, "value": value, "query": query, "n": n}
    return facet | {"is_sample": True} if is_sample else facet
