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

from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.histograms import Histogram, bin_index_sql
from apps.trace_store.metrics import (
    ALL_MEASURES,
    DETAILS,
    Details,
    Distribution,
    Measure,
    RunMetrics,
)

ANCESTOR_WINDOW = timedelta(days=3)
"""Ancestors are searched this long before a run: longer traces are rare."""

Condition = tuple[str, list[Any]]
"""SQL over `trace_store_run r`, and its parameters."""
START_TIME_SQL = "coalesce(r.start_time, r.partition_time)"
STATUS_SQL = (
    "CASE WHEN r.error_preview IS NOT NULL THEN 'error'"
    " WHEN r.end_time IS NULL THEN 'pending' ELSE 'success' END"
)
RUN_TYPE_SQL = "coalesce(r.run_type, 'chain')"
NAME_SQL = "coalesce(r.name, '')"
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
class Aggregation:
    """What to aggregate. The parts are disjoint sets of runs."""

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


def aggregate_runs(counting: Aggregation) -> Iterator[tuple[tuple[Any, ...], RunMetrics]]:
    """Yield the metrics of each group that has runs."""
    if not counting.parts:
        return
    statement, values = _statement(counting)
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        width = len(counting.groups)
        for row in cursor:
            yield tuple(row[:width]), _metrics_from_result(counting, row[width:])


def _statement(counting: Aggregation) -> tuple[str, list[Any]]:
    results = [m for m in counting.measures if m.is_usage]
    tells_usage = bool(results) or counting.details
    selects, values = [], []
    for part in counting.parts:
        text, given = _matched_runs_sql(counting, part, tells_usage=tells_usage)
        selects.append(text)
        values += given
    materialized = "MATERIALIZED" if tells_usage else ""
    ctes = [f"matched AS {materialized} ({' UNION ALL '.join(selects)})"]
    source = "matched m"
    if tells_usage:
        more, given = _usage_ctes(counting)
        ctes += more
        values += given
        key = "trace_id" if counting.of_traces else "id"
        # A FULL JOIN that acts as a left join: on partitions without statistics, the planner
        # chooses nested loops for a left join (45 s for 32,000 runs).
        source += f" FULL JOIN usage u ON u.project_id = m.project_id AND u.{key} = m.{key}"
        source += " WHERE CASE WHEN m.id IS NULL THEN false ELSE true END"
    names = [f"m.g{at}" for at in range(len(counting.groups))]
    columns = [
        *names,
        "count(*)",
        "count(*) FILTER (WHERE m.status = 'error')",
        "count(*) FILTER (WHERE m.status = 'pending')",
        "count(*) FILTER (WHERE m.is_model_call)",
        "count(*) FILTER (WHERE m.is_model_call AND m.has_first_token)",
        "max(m.started)",
    ]
    for measure in counting.measures:
        column = f"{'u' if measure.is_usage else 'm'}.{measure}"
        if measure.is_usage and counting.of_traces:
            # As in lists: a root without usage below it shows its own.
            column = f"coalesce(u.{measure}, m.{measure})"
        columns += [f"count({column})", f"sum({column})::numeric"]
        columns += [f"min({column})::numeric", f"max({column})::numeric"]
        if counting.quantiles is None:
            columns.append(
                f"array_agg({bin_index_sql(column)}) FILTER (WHERE {column} IS NOT NULL)"
            )
        else:
            columns.append(
                f"(percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY {column}))::numeric[]"
            )
            values.append(list(counting.quantiles))
    if counting.details:
        columns.append("array_agg(u.details::text) FILTER (WHERE u.details IS NOT NULL)")
    grouped = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
    return f"WITH {', '.join(ctes)} SELECT {', '.join(columns)} FROM {source}{grouped}", values


def _matched_runs_sql(
    counting: Aggregation, part: Sequence[Condition], *, tells_usage: bool
) -> tuple[str, list[Any]]:
    values: list[Any] = []
    columns = [
        f"{STATUS_SQL} AS status",
        f"{RUN_TYPE_SQL} = 'llm' AS is_model_call",
        "r.first_token_time IS NOT NULL AS has_first_token",
        f"{START_TIME_SQL} AS started",
    ]
    if tells_usage:
        columns += ["r.project_id", "r.id", "r.trace_id"]
    for measure in counting.measures:
        if measure.is_usage and counting.of_traces:
            columns.append(f"r.{measure}")
        elif measure.is_time:
            # Whole microseconds make sums independent of their order.
            seconds = f"date_part('epoch', {_TIMES[measure]})"
            # `greatest` ignores NULL, so a missing end or first token must not become 0.
            known = f"CASE WHEN {_TIMES[measure]} IS NOT NULL THEN"
            columns.append(f"{known} greatest(({seconds} * 1000000)::int8, 0) END AS {measure}")
    for at, group in enumerate(counting.groups):
        columns.append(f"{group.expression} AS g{at}")
        values += group.values
    joins = " ".join(group.join for group in counting.groups if group.join)
    values += [value for group in counting.groups for value in group.join_values]
    where = " AND ".join(
        [
            *(condition for condition, _ in part),
            *(f"{group.expression} IS NOT NULL" for group in counting.groups if group.join),
        ]
    )
    values.append(counting.workspace_id)
    values += [value for _, given in part for value in given]
    text = (
        f"SELECT {', '.join(columns)} FROM trace_store_run r {joins}"
        f" WHERE r.workspace_id = %s{' AND ' if where else ''}{where}"
    )
    return text, values


def _usage_ctes(counting: Aggregation) -> tuple[list[str], list[Any]]:
    """CTEs that find the usage of the matched runs: `usage`, by run or by trace."""
    tree = "PARTITION BY project_id, trace_id ORDER BY dotted_order"
    since = "" if counting.since is None else "AND r.partition_time >= %s"
    result = ", ".join(f"{measure}" for measure in _USAGE)
    summed = ", ".join(f"sum({measure}) AS {measure}" for measure in _USAGE)
    if counting.of_traces:
        usage = (
            f"SELECT project_id, trace_id, {summed}, jsonb_agg(usage_details)"
            " FILTER (WHERE usage_details IS NOT NULL) AS details FROM tellers"
            " WHERE is_last GROUP BY project_id, trace_id"
        )
    else:
        usage = (
            f"SELECT project_id, id, {result}, usage_details AS details FROM tellers WHERE is_last"
        )
    sources = (
        "sources AS (SELECT r.project_id, r.id, r.trace_id, r.dotted_order,"
        f" {RUN_TYPE_SQL} = 'llm' AS is_model_call, r.usage_details, {result}"
        " FROM (SELECT DISTINCT project_id, trace_id FROM matched) t"
        " JOIN trace_store_run r ON r.project_id = t.project_id AND r.trace_id = t.trace_id"
        " WHERE r.workspace_id = %s AND (r.total_tokens IS NOT NULL OR r.total_cost IS NOT NULL)"
        f" {since})"
    )
    spoken = (
        "spoken AS (SELECT *, trace_store_usage_source(dotted_order, is_model_call)"
        f" OVER ({tree}) AS speaker FROM sources)"
    )
    # A model call counts for all its descendants; another run only if no descendant has usage.
    tellers = (
        "tellers AS (SELECT *, NOT coalesce(starts_with(lead(dotted_order)"
        f" OVER ({tree}), dotted_order || '.'), false) AS is_last FROM spoken"
        " WHERE CASE WHEN speaker = '' THEN true ELSE speaker = dotted_order END)"
    )
    return [sources, spoken, tellers, f"usage AS MATERIALIZED ({usage})"], [
        counting.workspace_id,
        *([] if counting.since is None else [counting.since]),
    ]


def _metrics_from_result(counting: Aggregation, row: Sequence[Any]) -> RunMetrics:
    figures = RunMetrics(*row[:6])
    at = 6
    for measure in counting.measures:
        known, total, least, most, spread = row[at : at + 5]
        at += 5
        if known:
            figures.measures[measure] = _distribution(
                counting, Distribution(known, total, least, most), spread
            )
    if counting.details:
        figures.details = _sum_details(row[at] or [])
    return figures


def metrics_from_row(row: Sequence[Any], measures: Sequence[Measure]) -> RunMetrics:
    """Build metrics from a rollup row: counts, these measures, and details as JSON text."""
    figures = RunMetrics(*row[:6])
    for measure, value in zip(measures, row[6:], strict=False):
        if value is not None:
            figures.measures[measure] = Distribution.from_bytes(value)
    if len(row) > 6 + len(measures) and row[-1]:
        result = json.loads(row[-1])
        figures.details = {
            kind: {name: Decimal(amount) for name, amount in amounts.items()}
            for kind, amounts in result.items()
        }
    return figures


def _distribution(
    counting: Aggregation, distribution: Distribution, spread: Sequence[Any]
) -> Distribution:
    if counting.quantiles is None:
        distribution.histogram = Histogram.of_bins(spread)
    else:
        distribution.exact = dict(zip(counting.quantiles, spread, strict=True))
    return distribution


def _sum_details(texts: Sequence[str]) -> Details:
    total: Details = {}
    for text in texts:
        result = json.loads(text, parse_int=Decimal, parse_float=Decimal)
        for item in result if isinstance(result, list) else [result]:
            for kind in DETAILS:
                amounts = item.get(kind)
                if not isinstance(amounts, dict):
                    continue
                kept = total.setdefault(kind, {})
                for name, amount in amounts.items():
                    if isinstance(amount, Decimal):
                        kept[name] = kept.get(name, Decimal(0)) + amount
    return total
