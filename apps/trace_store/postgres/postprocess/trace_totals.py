"""Token and cost totals of traces, stored in the `sum_…` columns of `trace_store_run`.

What a run shows is `coalesce(sum_x, x)`: of a model's call its own, of any other run the sum of
what is below it, see `store.totals`.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from apps.core.raw_sql import raw_cursor, sql
from apps.trace_store.dotted_order import root_time
from apps.trace_store.postgres.reading.rows import MAX_CLOCK_SKEW
from apps.trace_store.postgres.rollups.intervals import EARLIEST_TIME, LATEST_TIME
from apps.trace_store.postgres.usage_totals import UsageSource, UsageTotals
from apps.trace_store.types import ChangedRun, Usage

TOTAL_TYPES = {
    "prompt_tokens": "int8",
    "completion_tokens": "int8",
    "total_tokens": "int8",
    "prompt_cost": "numeric",
    "completion_cost": "numeric",
    "total_cost": "numeric",
}
_values_of = attrgetter(*TOTAL_TYPES)
_OWN = ", ".join(TOTAL_TYPES)
_SUMS = ", ".join(f"sum_{name}" for name in TOTAL_TYPES)
_IS_SUMMED = "(sum_total_tokens IS NOT NULL OR sum_total_cost IS NOT NULL)"

Key = tuple[UUID, UUID]
"""Run and project."""
Trace = tuple[UUID, UUID]
"""Project and trace."""


def update_totals(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    """Update the stored totals of the traces of these runs. Safe to repeat."""
    if not changed_runs:
        return
    since = _earliest_start(workspace_id, changed_runs)
    sources: dict[Trace, list[UsageSource]] = defaultdict(list)
    stale: dict[Key, tuple[Any, ...]] = {}
    until = since
    for row in _usage_rows(
        workspace_id, {(run.project_id, run.trace_id) for run in changed_runs}, since
    ):
        run_id, project_id, partition_time, trace_id, dotted_order, run_type, is_summed = row[:7]
        usage = Usage(**dict(zip(TOTAL_TYPES, row[7:13], strict=True)))
        if usage.is_known:
            source = UsageSource(dotted_order, run_type == "llm", usage)
            sources[project_id, trace_id].append(source)
        if is_summed:
            stale[run_id, project_id] = row[13:]
        until = max(until, partition_time)
    sums = {
        key: values
        for (project_id, _), result in sources.items()
        for key, values in _totals_of_trace(project_id, result)
    }
    nothing = (None,) * len(TOTAL_TYPES)
    written = dict.fromkeys(stale.keys() - sums.keys(), nothing) | {
        key: values for key, values in sums.items() if stale.get(key) != values
    }
    if written:
        _write_totals(workspace_id, written, since, min(until, LATEST_TIME) + MAX_CLOCK_SKEW)


def _earliest_start(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> datetime:
    """A lower bound of the partition times in these traces, from the root times.

    Ids do not tell it, because old work may be sent under new ids.
    """
    times = [run.partition_time for run in changed_runs]
    with raw_cursor() as cursor:
        cursor.execute(
            # The digits of the time sort chronologically.
            "SELECT min(left(r.dotted_order, 22))"
            " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
            " AS k(id, project_id, partition_time)"
            " JOIN trace_store_run r ON r.workspace_id = %s AND r.id = k.id"
            " AND r.project_id = k.project_id AND r.partition_time = k.partition_time"
            " WHERE r.partition_time BETWEEN %s AND %s",
            [
                [run.run_id for run in changed_runs],
                [run.project_id for run in changed_runs],
                times,
                workspace_id,
                min(times),
                max(times),
            ],
        )
        (earliest,) = cursor.fetchone() or (None,)
    begins = min(times) if earliest is None else min(root_time(earliest), *times)
    # Clocks may be slightly off.
    return max(begins, EARLIEST_TIME) - MAX_CLOCK_SKEW


def _usage_rows(
    workspace_id: UUID, traces: Collection[Trace], since: datetime
) -> Iterator[tuple[Any, ...]]:
    """Read the runs that have usage or stored totals."""
    trace_ids = list({trace_id for _, trace_id in traces})
    project_ids = list({project_id for project_id, _ in traces})
    statement = (
        f"SELECT id, project_id, partition_time, trace_id, dotted_order, run_type, {_IS_SUMMED},"
        f" {_OWN}, {_SUMS} FROM trace_store_run"
        " WHERE workspace_id = %s AND trace_id = ANY(%s) AND project_id = ANY(%s)"
        " AND partition_time >= %s"
        f" AND (total_tokens IS NOT NULL OR total_cost IS NOT NULL OR {_IS_SUMMED})"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [workspace_id, trace_ids, project_ids, since], binary=True)
        yield from cursor


def _totals_of_trace(
    project_id: UUID, sources: Sequence[UsageSource]
) -> Iterator[tuple[Key, tuple[Any, ...]]]:
    """Yield the ancestors of the sources with their totals."""
    totals = UsageTotals(sources)
    above: set[str] = set()
    for source in sources:
        path = source.dotted_order
        while (path := path.rpartition(".")[0]) and path not in above:
            above.add(path)
    for path in above:
        usage = totals.below(path)
        if usage is not None:
            yield (UUID(path[-36:]), project_id), _values_of(usage)


def _write_totals(
    workspace_id: UUID, sums: dict[Key, tuple[Any, ...]], begin: datetime, end: datetime
) -> None:
    # Lock rows in the same order as requests do, so that none deadlock.
    keys = sorted(sums)
    arrays = ", ".join(f"%s::{kind}[]" for kind in TOTAL_TYPES.values())
    sets = ", ".join(f"sum_{name} = s.{name}" for name in TOTAL_TYPES)
    statement = (
        f"WITH sums AS (SELECT * FROM unnest(%s::uuid[], %s::uuid[], {arrays})"
        f" AS s(id, project_id, {_OWN})), taken AS ("
        " SELECT r.id, r.project_id, r.partition_time FROM sums s JOIN trace_store_run r"
        " ON r.workspace_id = %s AND r.id = s.id AND r.project_id = s.project_id"
        " WHERE r.partition_time BETWEEN %s AND %s AND r.run_type IS DISTINCT FROM 'llm'"
        " ORDER BY r.id, r.project_id, r.partition_time FOR NO KEY UPDATE OF r)"
        f" UPDATE trace_store_run r SET {sets} FROM taken t JOIN sums s USING (id, project_id)"
        " WHERE r.workspace_id = %s AND r.partition_time BETWEEN %s AND %s"
        " AND r.id = t.id AND r.project_id = t.project_id AND r.partition_time = t.partition_time"
    )
    between = [workspace_id, begin, end]
    columns = [list(column) for column in zip(*(sums[key] for key in keys), strict=True)]
    values: list[Any] = [[key[0] for key in keys], [key[1] for key in keys], *columns]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, *between, *between])


def update_changed_traces(workspace_id: UUID, changed_runs: Sequence[ChangedRun]) -> None:
    update_totals(workspace_id, changed_runs)
