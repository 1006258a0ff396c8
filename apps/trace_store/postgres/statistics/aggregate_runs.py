"""Aggregates runs: one statement for any set of runs and any grouping.

Tokens and costs are those of the usage sources, each counted once (see `usage_totals`); for roots
they may be the totals of the traces.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store.histograms import Histogram, bin_index_sql
from apps.trace_store.metrics import (
    ALL_MEASURES,
    COUNT_NAMES,
    DETAILS,
    Details,
    Distribution,
    Measure,
    RunMetrics,
)
from apps.trace_store.run_status import status_sql

ANCESTOR_WINDOW = timedelta(days=3)
"""How long before a run its ancestors are searched; longer traces are rare."""

Condition = tuple[str, list[Any]]
"""SQL over `trace_store_run r`, and its parameters."""
START_TIME_SQL = "coalesce(r.start_time, r.partition_time)"
STATUS_SQL = status_sql("r")
RUN_TYPE_SQL = "coalesce(r.run_type, 'chain')"
NAME_SQL = "coalesce(r.name, '')"
COUNTS = len(COUNT_NAMES)
SCOPE_SQL = "least(array_length(string_to_array(r.dotted_order, '.'), 1) - 1, 2)"

_USAGE = tuple(measure for measure in Measure if measure.is_usage)
_TIMES = {
    Measure.LATENCY: f"r.end_time - {START_TIME_SQL}",
    Measure.FIRST_TOKEN: f"r.first_token_time - {START_TIME_SQL}",
}


@dataclass(frozen=True, slots=True)
class GroupExpression:
    """A grouping expression over `r`, and its join.

    Runs without a value from the join belong to no group.
    """

    expression: str
    values: Sequence[Any] = ()
    join: str = ""
    join_values: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationPlan:
    """The parameters of an aggregation. The parts are disjoint sets of runs."""

    workspace_id: UUID
    parts: Sequence[Sequence[Condition]]
    groups: Sequence[GroupExpression] = ()
    measures: Sequence[Measure] = ALL_MEASURES
    of_traces: bool = False
    """The runs are roots, with the tokens of their traces."""
    quantiles: Sequence[float] | None = None
    """Exact quantiles to compute; without them, mergeable histograms are built."""
    details: bool = False
    since: datetime | None = None
    """A lower bound of the partition times of all related runs."""


def aggregate_runs(aggregation: AggregationPlan) -> Iterator[tuple[tuple[Any, ...], RunMetrics]]:
    """Yield the metrics of each group that has runs."""
    if not aggregation.parts:
        return
    statement, values = _build_statement(aggregation)
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        width = len(aggregation.groups)
        for row in cursor:
            yield tuple(row[:width]), _metrics_from_result(aggregation, row[width:])


def _build_statement(aggregation: AggregationPlan) -> tuple[str, list[Any]]:
    usage_measures = [m for m in aggregation.measures if m.is_usage]
    with_usage = bool(usage_measures) or aggregation.details
    selects, values = [], []
    for part in aggregation.parts:
        text, parameters = _matched_runs_sql(aggregation, part, with_usage=with_usage)
        selects.append(text)
        values += parameters
    materialized = "MATERIALIZED" if with_usage else ""
    ctes = [f"matched AS {materialized} ({' UNION ALL '.join(selects)})"]
    source = "matched m"
    if with_usage:
        usage_ctes, parameters = _usage_ctes(aggregation)
        ctes += usage_ctes
        values += parameters
        key = "trace_id" if aggregation.of_traces else "id"
        # A FULL JOIN that acts as a left join: on partitions without statistics, the planner
        # chooses nested loops for a left join (45 s for 32,000 runs).
        source += f" FULL JOIN usage u ON u.project_id = m.project_id AND u.{key} = m.{key}"
        source += " WHERE CASE WHEN m.id IS NULL THEN false ELSE true END"
    names = [f"m.g{index}" for index in range(len(aggregation.groups))]
    columns = [
        *names,
        "count(*)",
        "count(*) FILTER (WHERE m.status = 'error')",
        "count(*) FILTER (WHERE m.status = 'interrupted')",
        "count(*) FILTER (WHERE m.status = 'cancelled')",
        "count(*) FILTER (WHERE m.status = 'pending')",
        "count(*) FILTER (WHERE m.is_model_call)",
        "count(*) FILTER (WHERE m.is_model_call AND m.has_first_token)",
        "max(m.started)",
    ]
    for measure in aggregation.measures:
        column = f"{'u' if measure.is_usage else 'm'}.{measure}"
        if measure.is_usage and aggregation.of_traces:
            # As in lists, a root whose descendants have no usage shows its own usage.
            column = f"coalesce(u.{measure}, m.{measure})"
        columns += [f"count({column})", f"sum({column})::numeric"]
        columns += [f"min({column})::numeric", f"max({column})::numeric"]
        if aggregation.quantiles is None:
            columns.append(
                f"array_agg({bin_index_sql(column)}) FILTER (WHERE {column} IS NOT NULL)"
            )
        else:
            columns.append(
                f"(percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY {column}))::numeric[]"
            )
            values.append(list(aggregation.quantiles))
    if aggregation.details:
        columns.append("array_agg(u.details::text) FILTER (WHERE u.details IS NOT NULL)")
    grouped = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
    return f"WITH {', '.join(ctes)} SELECT {', '.join(columns)} FROM {source}{grouped}", values


def _matched_runs_sql(
    aggregation: AggregationPlan, part: Sequence[Condition], *, with_usage: bool
) -> tuple[str, list[Any]]:
    values: list[Any] = []
    columns = [
        f"{STATUS_SQL} AS status",
        f"{RUN_TYPE_SQL} = 'llm' AS is_model_call",
        "r.first_token_time IS NOT NULL AS has_first_token",
        f"{START_TIME_SQL} AS started",
    ]
    if with_usage:
        columns += ["r.project_id", "r.id", "r.trace_id"]
    for measure in aggregation.measures:
        if measure.is_usage and aggregation.of_traces:
            columns.append(f"r.{measure}")
        elif measure.is_time:
            # Whole microseconds make sums independent of their order.
            seconds = f"date_part('epoch', {_TIMES[measure]})"
            # `greatest` ignores NULL, so a missing end or first token must not become 0.
            guard = f"CASE WHEN {_TIMES[measure]} IS NOT NULL THEN"
            columns.append(f"{guard} greatest(({seconds} * 1000000)::int8, 0) END AS {measure}")
    for index, group in enumerate(aggregation.groups):
        columns.append(f"{group.expression} AS g{index}")
        values += group.values
    joins = " ".join(group.join for group in aggregation.groups if group.join)
    values += [value for group in aggregation.groups for value in group.join_values]
    where = " AND ".join(
        [
            *(condition for condition, _ in part),
            *(f"{group.expression} IS NOT NULL" for group in aggregation.groups if group.join),
        ]
    )
    values.append(aggregation.workspace_id)
    values += [value for _, parameters in part for value in parameters]
    text = (
        f"SELECT {', '.join(columns)} FROM trace_store_run r {joins}"
        f" WHERE r.workspace_id = %s{' AND ' if where else ''}{where}"
    )
    return text, values


def _usage_ctes(aggregation: AggregationPlan) -> tuple[list[str], list[Any]]:
    """CTEs that find the usage of the matched runs: `usage`, by run or by trace."""
    tree = "PARTITION BY project_id, trace_id ORDER BY dotted_order"
    since = "" if aggregation.since is None else "AND r.partition_time >= %s"
    usage_columns = ", ".join(f"{measure}" for measure in _USAGE)
    summed = ", ".join(f"sum({measure}) AS {measure}" for measure in _USAGE)
    if aggregation.of_traces:
        usage = (
            f"SELECT project_id, trace_id, {summed}, jsonb_agg(usage_details)"
            " FILTER (WHERE usage_details IS NOT NULL) AS details FROM usage_sources"
            " WHERE is_last GROUP BY project_id, trace_id"
        )
    else:
        usage = (
            f"SELECT project_id, id, {usage_columns}, usage_details AS details FROM usage_sources"
            " WHERE is_last"
        )
    sources = (
        "sources AS (SELECT r.project_id, r.id, r.trace_id, r.dotted_order,"
        f" {RUN_TYPE_SQL} = 'llm' AS is_model_call, r.usage_details, {usage_columns}"
        " FROM (SELECT DISTINCT project_id, trace_id FROM matched) t"
        " JOIN trace_store_run r ON r.project_id = t.project_id AND r.trace_id = t.trace_id"
        " WHERE r.workspace_id = %s AND (r.total_tokens IS NOT NULL OR r.total_cost IS NOT NULL)"
        f" {since})"
    )
    model_calls_above = (
        "model_calls_above AS (SELECT *, trace_store_usage_source(dotted_order, is_model_call)"
        f" OVER ({tree}) AS counted_order FROM sources)"
    )
    # A model call counts for all its descendants; another run only if no descendant has usage.
    usage_sources = (
        "usage_sources AS (SELECT *, NOT coalesce(starts_with(lead(dotted_order)"
        f" OVER ({tree}), dotted_order || '.'), false) AS is_last FROM model_calls_above"
        " WHERE CASE WHEN counted_order = '' THEN true ELSE counted_order = dotted_order END)"
    )
    return [sources, model_calls_above, usage_sources, f"usage AS MATERIALIZED ({usage})"], [
        aggregation.workspace_id,
        *([] if aggregation.since is None else [aggregation.since]),
    ]


def _metrics_from_result(aggregation: AggregationPlan, row: Sequence[Any]) -> RunMetrics:
    metrics = RunMetrics(*row[:COUNTS])
    column = COUNTS
    for measure in aggregation.measures:
        count, total, lowest, highest, quantiles_or_bins = row[column : column + 5]
        column += 5
        if count:
            metrics.measures[measure] = _add_spread(
                aggregation, Distribution(count, total, lowest, highest), quantiles_or_bins
            )
    if aggregation.details:
        metrics.details = _sum_details(row[column] or [])
    return metrics


def metrics_from_row(row: Sequence[Any], measures: Sequence[Measure]) -> RunMetrics:
    """Build metrics from a rollup row: counts, these measures, and details as JSON text."""
    metrics = RunMetrics(*row[:COUNTS])
    for measure, value in zip(measures, row[COUNTS:], strict=False):
        if value is not None:
            metrics.measures[measure] = Distribution.from_bytes(value)
    if len(row) > COUNTS + len(measures) and row[-1]:
        details = json.loads(row[-1])
        metrics.details = {
            kind: {name: Decimal(amount) for name, amount in amounts.items()}
            for kind, amounts in details.items()
        }
    return metrics


def _add_spread(
    aggregation: AggregationPlan, distribution: Distribution, quantiles_or_bins: Sequence[Any]
) -> Distribution:
    if aggregation.quantiles is None:
        distribution.histogram = Histogram.from_bins(quantiles_or_bins)
    else:
        distribution.exact = dict(zip(aggregation.quantiles, quantiles_or_bins, strict=True))
    return distribution


def _sum_details(texts: Sequence[str]) -> Details:
    total: Details = {}
    for text in texts:
        parsed = json.loads(text, parse_int=Decimal, parse_float=Decimal)
        for item in parsed if isinstance(parsed, list) else [parsed]:
            for kind in DETAILS:
                amounts = item.get(kind)
                if not isinstance(amounts, dict):
                    continue
                sums = total.setdefault(kind, {})
                for name, amount in amounts.items():
                    if isinstance(amount, Decimal):
                        sums[name] = sums.get(name, Decimal(0)) + amount
    return total
