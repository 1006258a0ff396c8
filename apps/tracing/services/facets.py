"""Facets: the most frequent values in the runs of a query, each with a filter that selects it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from apps.feedback.services import score_stats
from apps.feedback.services.score_stats import FeedbackStats
from apps.trace_store import RunQuery, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery
from apps.trace_store.filters import quote
from apps.trace_store.filters.query_fields import DEPLOYMENT_KEY

SAMPLE_SIZE = 1000
"""Tags and metadata are sampled from the newest runs; `is_sample` marks them."""
MAX_VALUES = 20
_MAX_VALUE_LENGTH = 200
_TECHNICAL = re.compile(
    r"ls_|lc_|langgraph_|langsmith|LANGSMITH_|LANGCHAIN_|checkpoint_|a2a_|otel[._]|__"
    r"|(?:(?:run|thread|session|conversation|trace|graph|assistant|cron|request|parent_run)_id"
    r"|run_attempt|versions|created_by|from_studio)$"
)
"""Metadata keys that SDKs and servers add for themselves: ids, versions and settings."""

Facet = dict[str, Any]
"""`key`, `value`, `query` and `n`; `is_sample` or `counted_since` if `n` counts the newest runs."""


def is_technical(key: str) -> bool:
    """Return whether SDKs or servers add this metadata key, which is listed after the user's own.

    The deployment, which has a field of the query language, is none of these keys.
    """
    return key != DEPLOYMENT_KEY and _TECHNICAL.match(key) is not None


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
    result = run_store.aggregate(
        workspace_id, MetricsQuery(query=query, group_by=group_by, measures=())
    )
    for value, metrics in sorted(
        result.by_group.items(), key=lambda pair: (-pair[1].runs, pair[0] or "")
    ):
        if value:
            facet = _facet(key, value, f"eq({key}, {quote(value)})", metrics.runs)
            if result.counted_since is not None:
                facet["counted_since"] = result.counted_since
            yield facet


def _sample_runs(workspace_id: UUID, query: RunQuery) -> Iterator[Facet]:
    page = run_store.query(workspace_id, query, limit=SAMPLE_SIZE)
    is_sample = page.next_cursor is not None
    tag_counts: Counter[str] = Counter()
    metadata_counts: Counter[tuple[str, str]] = Counter()
    for run in page.runs:
        tag_counts.update(set(run.row.tags))
        metadata_counts.update(
            (key, text)
            for key, value in run.row.metadata.items()
            if (text := _value_text(value)) is not None
        )
    for tag, count in tag_counts.most_common(MAX_VALUES):
        yield _facet("tag", tag, f"has(tags, {quote(tag)})", count, is_sample=is_sample)
    values_by_key: dict[str, list[tuple[str, int]]] = {}
    for (key, text), count in metadata_counts.most_common():
        values_by_key.setdefault(key, []).append((text, count))
    keys = sorted(values_by_key, key=is_technical)
    for key in keys[:MAX_VALUES]:
        for text, count in values_by_key[key][:MAX_VALUES]:
            where = f"and(eq(metadata_key, {quote(key)}), eq(metadata_value, {quote(text)}))"
            yield _facet(f"metadata.{key}", text, where, count, is_sample=is_sample)


def _value_text(value: Any) -> str | None:
    """Return the text of a short scalar metadata value; None for any other value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str) and 0 < len(str(value)) <= _MAX_VALUE_LENGTH:
        return str(value)
    return None


def _feedback_facets(stats: FeedbackStats) -> Iterator[Facet]:
    for key, scores in sorted(stats.items(), key=lambda pair: (-pair[1]["n"], pair[0]))[
        :MAX_VALUES
    ]:
        yield _facet("feedback_key", key, f"eq(feedback_key, {quote(key)})", scores["n"])


def _facet(key: str, value: str, query: str, n: int, *, is_sample: bool = False) -> Facet:
    facet = {"key": key, "value": value, "query": query, "n": n}
    return facet | {"is_sample": True} if is_sample else facet
