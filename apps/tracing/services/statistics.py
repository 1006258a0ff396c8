"""Statistics of runs in the API's terms: of a query, of its groups, of projects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.feedback.services import score_stats
from apps.trace_store import RunQuery, filters, run_store
from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.metrics import DETAILS, Measure, RunMetrics
from apps.tracing.services import facets

M = Measure


def format_cost(amount: Decimal | None) -> str | None:
    """Format an amount as a string without exponent, so that no client rounds it."""
    return None if amount is None else format(amount.normalize(), "f")


def _quantile(measure: Measure, share: float) -> Callable[[RunMetrics], Any]:
    def read(figures: RunMetrics) -> Any:
        value = figures.quantile(measure, share)
        return format_cost(value) if isinstance(value, Decimal) else value

    return read


def _total(measure: Measure) -> Callable[[RunMetrics], Any]:
    def read(figures: RunMetrics) -> Any:
        value = figures.total(measure)
        return format_cost(value) if isinstance(value, Decimal) else value

    return read


METRICS: dict[str, Callable[[RunMetrics], Any]] = {
    "run_count": lambda figures: figures.runs,
    "latency_p50": _quantile(M.LATENCY, 0.5),
    "latency_p99": _quantile(M.LATENCY, 0.99),
    "latency_avg": lambda figures: figures.average(M.LATENCY),
    "first_token_p50": _quantile(M.FIRST_TOKEN, 0.5),
    "first_token_p99": _quantile(M.FIRST_TOKEN, 0.99),
    "total_tokens": _total(M.TOTAL_TOKENS),
    "prompt_tokens": _total(M.PROMPT_TOKENS),
    "completion_tokens": _total(M.COMPLETION_TOKENS),
    "median_tokens": _quantile(M.TOTAL_TOKENS, 0.5),
    "prompt_tokens_p50": _quantile(M.PROMPT_TOKENS, 0.5),
    "completion_tokens_p50": _quantile(M.COMPLETION_TOKENS, 0.5),
    "tokens_p99": _quantile(M.TOTAL_TOKENS, 0.99),
    "prompt_tokens_p99": _quantile(M.PROMPT_TOKENS, 0.99),
    "completion_tokens_p99": _quantile(M.COMPLETION_TOKENS, 0.99),
    "total_cost": _total(M.TOTAL_COST),
    "prompt_cost": _total(M.PROMPT_COST),
    "completion_cost": _total(M.COMPLETION_COST),
    "cost_p50": _quantile(M.TOTAL_COST, 0.5),
    "cost_p99": _quantile(M.TOTAL_COST, 0.99),
    "last_run_start_time": lambda figures: figures.last_start,
    "error_rate": lambda figures: figures.error_rate,
    "streaming_rate": lambda figures: figures.streaming_rate,
}
_MEASURES_BY_PREFIX = {
    "latency": (M.LATENCY,),
    "first": (M.FIRST_TOKEN,),
    "total": (M.TOTAL_TOKENS, M.TOTAL_COST),
    "prompt": (M.PROMPT_TOKENS, M.PROMPT_COST),
    "completion": (M.COMPLETION_TOKENS, M.COMPLETION_COST),
    "median": (M.TOTAL_TOKENS,),
    "tokens": (M.TOTAL_TOKENS,),
    "cost": (M.TOTAL_COST,),
}
RELATED_STATS = ("feedback_stats", "session_feedback_stats", "thread_feedback_stats", "run_facets")
METRIC_SETS = {
    "all_run_stats": (*METRICS, *RELATED_STATS),
    "all_token_stats": tuple(name for name in METRICS if "token" in name or "cost" in name),
}
SELECTABLE = frozenset({*METRICS, *RELATED_STATS, *DETAILS, *METRIC_SETS, "group_count"})


def run_stats(
    workspace_id: UUID,
    query: RunQuery,
    *,
    select: Collection[str] | None = None,
    with_details: bool = False,
) -> dict[str, Any]:
    """Return all or the selected statistics of the query's runs; zeros and nulls without runs.

    If only the newest runs were counted, `counted_since` is the start of their period.
    """
    selected = _selected_names(select, with_details=with_details)
    answer = run_store.aggregate(workspace_id, _metrics_query(query, selected))
    stats = _render_metrics(answer.whole, selected)
    stats |= _related_stats(workspace_id, query, selected)
    return stats | _partial_result(answer)


def grouped_stats(
    workspace_id: UUID,
    query: RunQuery,
    group_by: GroupBy,
    *,
    groups: Sequence[str] | None = None,
    select: Collection[str] | None = None,
    with_details: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the statistics by group: of the named groups, else of the largest."""
    selected = _selected_names(select, with_details=with_details) - set(RELATED_STATS)
    if groups is not None:
        group_by = replace(group_by, max_groups=10_000)
    answer = run_store.aggregate(
        workspace_id, replace(_metrics_query(query, selected), group_by=group_by)
    )
    names = groups if groups is not None else _groups_by_size(answer)
    count = {"group_count": len(answer.by_group)} if "group_count" in selected else {}
    return {
        name: _render_metrics(answer.by_group.get(name) or RunMetrics(), selected)
        | count
        | _partial_result(answer)
        for name in names
    }


def turn_stats(workspace_id: UUID, query: RunQuery) -> dict[str, Any]:
    """Return the statistics of the query's runs that belong to a thread."""
    in_thread = filters.parse("is_not_null(thread_id)")
    turns = replace(query, where=filters.all_of([query.where, in_thread]))
    return run_stats(workspace_id, turns, select=[*METRICS, "feedback_stats"])


def _groups_by_size(answer: MetricsResult) -> list[str]:
    names = [name for name in answer.by_group if name is not None]
    return sorted(names, key=lambda name: (-answer.by_group[name].runs, name))


def project_stats(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    *,
    since: datetime | None = None,
    where: RunQuery | None = None,
    select: Collection[str] | None = None,
    with_facets: bool = False,
) -> Mapping[UUID, dict[str, Any]]:
    """Return the statistics of each project, as the list shows them with `include_stats`.

    Counts, tokens and first tokens cover all runs, latencies and the error rate root runs. `since`
    excludes runs that started earlier; the filters of `where` exclude others.
    """
    if not project_ids:
        return {}
    query = replace(where or RunQuery(), project_ids=list(project_ids))
    if since is not None:
        query = replace(query, started_from=since)
    selected = _selected_names(select, with_details=False)
    everything = _by_project(workspace_id, query, selected)
    of_traces = {"latency_p50", "latency_p99", "latency_avg", "error_rate"} & selected
    roots: Mapping[str | None, RunMetrics] = {}
    if of_traces:
        roots = _by_project(workspace_id, replace(query, is_root=True), of_traces)
    data = _feedback(workspace_id, project_ids, since, selected)
    stats: dict[UUID, dict[str, Any]] = {}
    for project_id in project_ids:
        stats[project_id] = _render_metrics(
            everything.get(str(project_id)) or RunMetrics(), selected
        )
        stats[project_id] |= _render_metrics(roots.get(str(project_id)) or RunMetrics(), of_traces)
        stats[project_id] |= {
            name: score_stats.get(project_id, {}) for name, score_stats in data.items()
        }
        if with_facets:
            result = replace(query, project_ids=[project_id])
            stats[project_id]["run_facets"] = facets.collect_facets(workspace_id, result)
    return stats


def _by_project(
    workspace_id: UUID, query: RunQuery, selected: Collection[str]
) -> Mapping[str | None, RunMetrics]:
    group_by = GroupBy(GroupAttribute.PROJECT, max_groups=len(query.project_ids or ()))
    question = replace(_metrics_query(query, selected), group_by=group_by)
    return run_store.aggregate(workspace_id, question).by_group


def _feedback(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    since: datetime | None,
    selected: Collection[str],
) -> dict[str, Mapping[UUID, Any]]:
    data: dict[str, Mapping[UUID, Any]] = {}
    if "feedback_stats" in selected:
        data["feedback_stats"] = score_stats.by_project_runs(
            workspace_id, project_ids, started_from=since
        )
    if "session_feedback_stats" in selected:
        data["session_feedback_stats"] = score_stats.by_project(workspace_id, project_ids)
    return data


def _selected_names(select: Collection[str] | None, *, with_details: bool) -> set[str]:
    if not select:
        return {*METRICS, *RELATED_STATS, *(DETAILS if with_details else ())}
    selected = {name for item in select for name in METRIC_SETS.get(item, (item,))}
    return selected | set(DETAILS if with_details else ())


def _metrics_query(query: RunQuery, selected: Collection[str]) -> MetricsQuery:
    needed = {
        measure
        for name in selected & METRICS.keys()
        for measure in _MEASURES_BY_PREFIX.get(_prefix(name), ())
    }
    return MetricsQuery(
        query=query,
        measures=[measure for measure in Measure if measure in needed],
        details=bool(set(DETAILS) & set(selected)),
    )


def _prefix(name: str) -> str:
    return name.partition("_")[0]


def _render_metrics(figures: RunMetrics, selected: Collection[str]) -> dict[str, Any]:
    stats = {name: value(figures) for name, value in METRICS.items() if name in selected}
    for kind in DETAILS:
        if kind in selected:
            amounts = figures.details.get(kind, {})
            is_cost = kind.endswith("cost_details")
            stats[kind] = {
                name: format_cost(amount) if is_cost else int(amount)
                for name, amount in amounts.items()
            }
    return stats


def _related_stats(
    workspace_id: UUID, query: RunQuery, selected: Collection[str]
) -> dict[str, Any]:
    stats: dict[str, Any] = {}
    if "feedback_stats" in selected:
        stats["feedback_stats"] = score_stats.for_query(workspace_id, query)
    if "session_feedback_stats" in selected:
        of_each = score_stats.by_project(workspace_id, query.project_ids or [])
        stats["session_feedback_stats"] = score_stats.merge_stats(of_each.values())
    if "thread_feedback_stats" in selected:
        stats["thread_feedback_stats"] = {
            key: score_stats
            for key, score_stats in (stats.get("feedback_stats") or {}).items()
            if score_stats.get("contains_thread_feedback")
        }
    if "run_facets" in selected:
        stats["run_facets"] = facets.collect_facets(
            workspace_id, query, stats.get("feedback_stats")
        )
    return stats


def _partial_result(answer: MetricsResult) -> dict[str, Any]:
    if answer.counted_since is None:
        return {}
    return {"counted_since": answer.counted_since}
