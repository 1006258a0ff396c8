"""Computes metrics of any set of runs, from rollups where possible, otherwise from the runs.

Both sources give exactly the same counts, sums, extremes and averages; quantiles from rollups
differ from exact quantiles by at most one per cent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from apps.trace_store.aggregation import GroupAttribute, GroupBy, MetricsQuery, MetricsResult
from apps.trace_store.filters.query_analysis import extract_root_condition, extract_time_bounds
from apps.trace_store.metrics import RunMetrics
from apps.trace_store.postgres.rollups import dimensions, query_plan
from apps.trace_store.postgres.rollups.dimensions import RollupDimensions, RollupFilter
from apps.trace_store.postgres.rollups.intervals import EARLIEST_TIME, LATEST_TIME
from apps.trace_store.postgres.statistics import aggregate_runs
from apps.trace_store.postgres.statistics.aggregate_runs import (
    AggregationPlan,
    Condition,
    GroupExpression,
)
from apps.trace_store.postgres.statistics.run_selection import exact_conditions, resolve_query

if TYPE_CHECKING:
    from apps.trace_store.protocol import RunStore

_TICK = timedelta(microseconds=1)


def query_metrics(
    store: RunStore, workspace_id: UUID, metrics_query: MetricsQuery
) -> MetricsResult:
    """Return the metrics of the matching runs, whether they are processed or pending."""
    metrics_query = replace(
        metrics_query,
        query=extract_root_condition(extract_time_bounds(metrics_query.query)),
    )
    rollup = dimensions.rollup_filter(metrics_query.query, depth=metrics_query.depth)
    group = metrics_query.group_by
    if rollup is not None and (group is None or group.attribute in _ROLLUP_GROUPS):
        result = _from_rollups(workspace_id, metrics_query, rollup)
    else:
        result = _from_runs(store, workspace_id, metrics_query)
    if group is not None:
        result.group_count = len(result.by_group)
        if result.group_count > group.max_groups:
            return _largest_groups(result, group.max_groups)
    return result


def _largest_groups(result: MetricsResult, max_groups: int) -> MetricsResult:
    def sort_key(group: str | None) -> tuple[int, str]:
        return -result.by_group[group].runs, group or ""

    largest = set(sorted(result.by_group, key=sort_key)[:max_groups])
    return MetricsResult(
        {key: metrics for key, metrics in result.by_bucket.items() if key[1] in largest},
        result.counted_since,
        result.group_count,
    )


_ROLLUP_GROUPS: dict[GroupAttribute, Callable[[RollupDimensions], str]] = {
    GroupAttribute.NAME: lambda row: row.name,
    GroupAttribute.RUN_TYPE: lambda row: row.run_type,
    GroupAttribute.STATUS: lambda row: row.status,
    GroupAttribute.MODEL: lambda row: row.model,
    GroupAttribute.PROJECT: lambda _: "",
}


def _from_rollups(
    workspace_id: UUID, metrics_query: MetricsQuery, rollup: RollupFilter
) -> MetricsResult:
    query, group = metrics_query.query, metrics_query.group_by
    project_ids = list(dict.fromkeys(query.project_ids or ()))
    edges = _bucket_edges(metrics_query)
    rollup = rollup.grouped_by(group.attribute if group else None)
    if not project_ids or edges[0] >= edges[-1]:
        return MetricsResult({})
    plan = query_plan.plan_rollups(workspace_id, project_ids, edges, rollup)
    result: dict[tuple[int, str | None], RunMetrics] = defaultdict(RunMetrics)
    for cell, row, metrics in query_plan.read_rows(
        workspace_id, plan.cells, rollup, metrics_query.measures, details=metrics_query.details
    ):
        name: str | None = None
        if group is not None:
            by_project = group.attribute is GroupAttribute.PROJECT
            name = str(cell.project_id) if by_project else _ROLLUP_GROUPS[group.attribute](row)
        result[cell.bucket, name].add(metrics)
    # Quantiles are exact if all runs are read; merging them with rollups needs histograms.
    exact_quantiles = metrics_query.quantiles if not plan.cells else None
    without_range = replace(query, project_ids=None, started_from=None, started_until=None)
    conditions = [
        *exact_conditions(workspace_id, without_range),
        *_depth_condition(metrics_query.depth),
    ]
    parts = [[*part, *conditions] for part in plan.find_parts(workspace_id, project_ids)]
    _add_counts(result, workspace_id, metrics_query, parts, exact_quantiles, plan.since)
    return _to_result(result, group)


def _from_runs(store: RunStore, workspace_id: UUID, metrics_query: MetricsQuery) -> MetricsResult:
    query, edges = metrics_query.query, metrics_query.edges
    if edges is not None:
        # The edges also bound the query, so that only their time range is read.
        begin = edges[0] if query.started_from is None else max(edges[0], query.started_from)
        last = edges[-1] - _TICK
        end = last if query.started_until is None else min(last, query.started_until)
        query = replace(query, started_from=begin, started_until=end)
    selection = resolve_query(store, workspace_id, query)
    result: dict[tuple[int, str | None], RunMetrics] = defaultdict(RunMetrics)
    first = selection.counted_since or query.started_from
    since = None if first is None else max(first, EARLIEST_TIME) - aggregate_runs.ANCESTOR_WINDOW
    parts = [[*selection.conditions, *_depth_condition(metrics_query.depth)]]
    _add_counts(result, workspace_id, metrics_query, parts, metrics_query.quantiles, since)
    return _to_result(result, metrics_query.group_by, selection.counted_since)


def _add_counts(  # noqa: PLR0917  (private, called twice)
    metrics_by_group: dict[tuple[int, str | None], RunMetrics],
    workspace_id: UUID,
    metrics_query: MetricsQuery,
    parts: Sequence[Sequence[Condition]],
    quantiles: Sequence[float] | None,
    since: datetime | None,
) -> None:
    groups: list[GroupExpression] = []
    if metrics_query.edges is not None:
        bucket = f"width_bucket({aggregate_runs.START_TIME_SQL}, %s::timestamptz[]) - 1"
        groups.append(GroupExpression(bucket, [list(metrics_query.edges)]))
    if metrics_query.group_by is not None:
        groups.append(_group_expression(metrics_query.group_by))
    aggregation = AggregationPlan(
        workspace_id=workspace_id,
        parts=parts,
        groups=groups,
        measures=metrics_query.measures,
        of_traces=metrics_query.query.is_root is True,
        quantiles=quantiles,
        details=metrics_query.details,
        since=since,
    )
    for values, metrics in aggregate_runs.aggregate_runs(aggregation):
        bucket_index = values[0] if metrics_query.edges is not None else 0
        name = values[-1] if metrics_query.group_by is not None else None
        metrics_by_group[bucket_index, name].add(metrics)


def _to_result(
    metrics_by_group: Mapping[tuple[int, str | None], RunMetrics],
    group: GroupBy | None,
    cutoff: datetime | None = None,
) -> MetricsResult:
    if group is not None and group.attribute in {GroupAttribute.MODEL, GroupAttribute.NAME}:
        metrics_by_group = {key: metrics for key, metrics in metrics_by_group.items() if key[1]}
    return MetricsResult(
        {key: metrics for key, metrics in metrics_by_group.items() if metrics.runs}, cutoff
    )


def _group_expression(group: GroupBy) -> GroupExpression:
    match group.attribute:
        case GroupAttribute.NAME:
            return GroupExpression(aggregate_runs.NAME_SQL)
        case GroupAttribute.RUN_TYPE:
            return GroupExpression(aggregate_runs.RUN_TYPE_SQL)
        case GroupAttribute.STATUS:
            return GroupExpression(aggregate_runs.STATUS_SQL)
        case GroupAttribute.MODEL:
            return GroupExpression("coalesce(r.model, '')")
        case GroupAttribute.PROJECT:
            return GroupExpression("r.project_id::text")
        case GroupAttribute.TAG:
            join = "CROSS JOIN LATERAL (SELECT DISTINCT unnest(r.tags) AS tag) AS tags"
            return GroupExpression("tags.tag", join=join)
    join = "CROSS JOIN LATERAL (SELECT r.metadata ->> %s AS value) AS meta"
    return GroupExpression("meta.value", join=join, join_values=[group.path])


def _depth_condition(depth: int | None) -> list[Condition]:
    return [] if depth is None else [(f"{aggregate_runs.SCOPE_SQL} = %s", [depth])]


def _bucket_edges(metrics_query: MetricsQuery) -> Sequence[datetime]:
    """The edges of the buckets within the bounds of the query."""
    query = metrics_query.query
    begin = max(_utc(query.started_from) or EARLIEST_TIME, EARLIEST_TIME)
    end = min(_utc(query.started_until) or LATEST_TIME, LATEST_TIME) + _TICK
    if metrics_query.edges is None:
        return [begin, end]
    return [min(max(edge, begin), max(begin, end)) for edge in metrics_query.edges]


def _utc(timestamp: datetime | None) -> datetime | None:
    return None if timestamp is None else timestamp.astimezone(UTC)
