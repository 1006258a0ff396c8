"""Computes metrics of any set of runs, from rollups where possible, else from the runs.

Both ways give exactly the same counts, sums, extremes and averages; quantiles from rollups are
within one per cent of an actual value.
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
    Aggregation,
    Condition,
    GroupExpression,
)
from apps.trace_store.postgres.statistics.run_selection import exact_conditions, resolve_query

if TYPE_CHECKING:
    from apps.trace_store.protocol import RunStore

_TICK = timedelta(microseconds=1)


def query_metrics(store: RunStore, workspace_id: UUID, question: MetricsQuery) -> MetricsResult:
    """Return the metrics of the matching runs, whether they are processed or pending."""
    question = replace(
        question,
        query=extract_root_condition(extract_time_bounds(question.query)),
    )
    rollup = dimensions.rollup_filter(question.query, depth=question.depth)
    group = question.group_by
    if rollup is not None and (group is None or group.attribute in _ROLLUP_GROUPS):
        result = _from_rollups(workspace_id, question, rollup)
    else:
        result = _from_runs(store, workspace_id, question)
    if group is not None and len(result.by_group) > group.max_groups:
        return _largest_groups(result, group.max_groups)
    return result


def _largest_groups(result: MetricsResult, how_many: int) -> MetricsResult:
    def order(group: str | None) -> tuple[int, str]:
        return -result.by_group[group].runs, group or ""

    kept = set(sorted(result.by_group, key=order)[:how_many])
    return MetricsResult(
        {key: figures for key, figures in result.by_bucket.items() if key[1] in kept},
        result.counted_since,
    )


_ROLLUP_GROUPS: dict[GroupAttribute, Callable[[RollupDimensions], str]] = {
    GroupAttribute.NAME: lambda kind: kind.name,
    GroupAttribute.RUN_TYPE: lambda kind: kind.run_type,
    GroupAttribute.STATUS: lambda kind: kind.status,
    GroupAttribute.MODEL: lambda kind: kind.model,
    GroupAttribute.PROJECT: lambda _: "",
}


def _from_rollups(
    workspace_id: UUID, question: MetricsQuery, rollup: RollupFilter
) -> MetricsResult:
    query, group = question.query, question.group_by
    project_ids = list(dict.fromkeys(query.project_ids or ()))
    edges = _bucket_edges(question)
    rollup = rollup.by(group.attribute if group else None)
    if not project_ids or edges[0] >= edges[-1]:
        return MetricsResult({})
    plan = query_plan.plan_rollups(workspace_id, project_ids, edges, rollup)
    result: dict[tuple[int, str | None], RunMetrics] = defaultdict(RunMetrics)
    for cell, kind, figures in query_plan.read_rows(
        workspace_id, plan.cells, rollup, question.measures, details=question.details
    ):
        name: str | None = None
        if group is not None:
            of_project = group.attribute is GroupAttribute.PROJECT
            name = str(cell.project_id) if of_project else _ROLLUP_GROUPS[group.attribute](kind)
        result[cell.bucket, name].add(figures)
    # Quantiles are exact if only runs are counted; merged with rollups they need histograms.
    exact = question.quantiles if not plan.cells else None
    others = replace(query, project_ids=None, started_from=None, started_until=None)
    conditions = [*exact_conditions(workspace_id, others), *_depth_condition(question.depth)]
    parts = [[*part, *conditions] for part in plan.parts(workspace_id, project_ids)]
    _add_counts(result, workspace_id, question, parts, exact, plan.since)
    return _to_result(result, group)


def _from_runs(store: RunStore, workspace_id: UUID, question: MetricsQuery) -> MetricsResult:
    query, edges = question.query, question.edges
    if edges is not None:
        # The edges also bound the query, so that only their time range is read.
        begin = edges[0] if query.started_from is None else max(edges[0], query.started_from)
        last = edges[-1] - _TICK
        end = last if query.started_until is None else min(last, query.started_until)
        query = replace(query, started_from=begin, started_until=end)
    chosen = resolve_query(store, workspace_id, query)
    result: dict[tuple[int, str | None], RunMetrics] = defaultdict(RunMetrics)
    first = chosen.counted_since or query.started_from
    since = None if first is None else max(first, EARLIEST_TIME) - aggregate_runs.ANCESTOR_WINDOW
    parts = [[*chosen.conditions, *_depth_condition(question.depth)]]
    _add_counts(result, workspace_id, question, parts, question.quantiles, since)
    return _to_result(result, question.group_by, chosen.counted_since)


def _add_counts(  # noqa: PLR0917  (private, called twice)
    metrics_by_group: dict[tuple[int, str | None], RunMetrics],
    workspace_id: UUID,
    question: MetricsQuery,
    parts: Sequence[Sequence[Condition]],
    quantiles: Sequence[float] | None,
    since: datetime | None,
) -> None:
    groups: list[GroupExpression] = []
    if question.edges is not None:
        bucket = f"width_bucket({aggregate_runs.START_TIME_SQL}, %s::timestamptz[]) - 1"
        groups.append(GroupExpression(bucket, [list(question.edges)]))
    if question.group_by is not None:
        groups.append(_group_expression(question.group_by))
    result = Aggregation(
        workspace_id=workspace_id,
        parts=parts,
        groups=groups,
        measures=question.measures,
        of_traces=question.query.is_root is True,
        quantiles=quantiles,
        details=question.details,
        since=since,
    )
    for values, figures in aggregate_runs.aggregate_runs(result):
        at = values[0] if question.edges is not None else 0
        name = values[-1] if question.group_by is not None else None
        metrics_by_group[at, name].add(figures)


def _to_result(
    metrics_by_group: Mapping[tuple[int, str | None], RunMetrics],
    group: GroupBy | None,
    cutoff: datetime | None = None,
) -> MetricsResult:
    if group is not None and group.attribute in {GroupAttribute.MODEL, GroupAttribute.NAME}:
        metrics_by_group = {key: figures for key, figures in metrics_by_group.items() if key[1]}
    return MetricsResult(
        {key: figures for key, figures in metrics_by_group.items() if figures.runs}, cutoff
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


def _bucket_edges(question: MetricsQuery) -> Sequence[datetime]:
    """The edges of the buckets within the bounds of the query."""
    query = question.query
    begin = max(_utc(query.started_from) or EARLIEST_TIME, EARLIEST_TIME)
    end = min(_utc(query.started_until) or LATEST_TIME, LATEST_TIME) + _TICK
    if question.edges is None:
        return [begin, end]
    return [min(max(edge, begin), max(begin, end)) for edge in question.edges]


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
