"""Tokens and costs of traces, written to the runs above what says them: `sum_…` of `tracing_run`.

What a run shows is `coalesce(sum_x, x)`: of a model's call its own, of any other run the sum of
what is below it, see `store.totals`.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

from apps.tracing.store.locating import probable_days
from apps.tracing.store.raw import raw_cursor, sql
from apps.tracing.store.totals import Source, Totals
from apps.tracing.store.types import Usage

KINDS = {
    "prompt_tokens": "int8",
    "completion_tokens": "int8",
    "total_tokens": "int8",
    "prompt_cost": "numeric",
    "completion_cost": "numeric",
    "total_cost": "numeric",
}
_values_of = attrgetter(*KINDS)
_OWN = ", ".join(KINDS)
_SUMS = ", ".join(f"sum_{name}" for name in KINDS)
_IS_SUMMED = "(sum_total_tokens IS NOT NULL OR sum_total_cost IS NOT NULL)"
# What stands above a run began before it, by less than this.
_LONGEST = timedelta(days=30)

Key = tuple[UUID, UUID]
"""Run and project."""
Trace = tuple[UUID, UUID]
"""Project and trace."""


def settle_sums(workspace_id: UUID, traces: Collection[Trace]) -> None:
    """Make the sums of these traces what their runs say. Safe to repeat."""
    sources: dict[Trace, list[Source]] = defaultdict(list)
    stale: dict[Key, tuple[Any, ...]] = {}
    times: list[datetime] = []
    for row in _told(workspace_id, traces):
        run_id, project_id, placed_at, trace_id, dotted_order, run_type, is_summed = row[:7]
        usage = Usage(**dict(zip(KINDS, row[7:13], strict=True)))
        if usage.is_known:
            source = Source(dotted_order, run_type == "llm", usage)
            sources[project_id, trace_id].append(source)
        if is_summed:
            stale[run_id, project_id] = row[13:]
        times.append(placed_at)
    sums = {
        key: values
        for (project_id, _), said in sources.items()
        for key, values in _sums(project_id, said)
    }
    nothing = (None,) * len(KINDS)
    written = dict.fromkeys(stale.keys() - sums.keys(), nothing) | {
        key: values for key, values in sums.items() if stale.get(key) != values
    }
    if written:
        _write(workspace_id, written, min(times) - _LONGEST, max(times))


def _told(workspace_id: UUID, traces: Collection[Trace]) -> Iterator[tuple[Any, ...]]:
    """The runs that say something of usage, and those that have sums."""
    trace_ids = list({trace_id for _, trace_id in traces})
    project_ids = list({project_id for project_id, _ in traces})
    values: list[Any] = [workspace_id, trace_ids, project_ids]
    since = ""
    if near := probable_days(trace_ids):
        since = "AND placed_at >= %s"
        values.append(near[0])
    statement = (
        f"SELECT id, project_id, placed_at, trace_id, dotted_order, run_type, {_IS_SUMMED},"
        f" {_OWN}, {_SUMS} FROM tracing_run"
        f" WHERE workspace_id = %s AND trace_id = ANY(%s) AND project_id = ANY(%s) {since}"
        f" AND (total_tokens IS NOT NULL OR total_cost IS NOT NULL OR {_IS_SUMMED})"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        yield from cursor


def _sums(project_id: UUID, sources: Sequence[Source]) -> Iterator[tuple[Key, tuple[Any, ...]]]:
    """What stands above the sources, with its sum."""
    totals = Totals(sources)
    above: set[str] = set()
    for source in sources:
        path = source.dotted_order
        while (path := path.rpartition(".")[0]) and path not in above:
            above.add(path)
    for path in above:
        usage = totals.below(path)
        if usage is not None:
            yield (UUID(path[-36:]), project_id), _values_of(usage)


def _write(
    workspace_id: UUID, sums: dict[Key, tuple[Any, ...]], begin: datetime, end: datetime
) -> None:
    # Rows are taken in the order in which requests take them, so that nobody waits in a circle.
    keys = sorted(sums)
    arrays = ", ".join(f"%s::{kind}[]" for kind in KINDS.values())
    sets = ", ".join(f"sum_{name} = s.{name}" for name in KINDS)
    statement = (
        f"WITH said AS (SELECT * FROM unnest(%s::uuid[], %s::uuid[], {arrays})"
        f" AS s(id, project_id, {_OWN})), taken AS ("
        " SELECT r.id, r.project_id, r.placed_at FROM said s JOIN tracing_run r"
        " ON r.workspace_id = %s AND r.id = s.id AND r.project_id = s.project_id"
        " WHERE r.placed_at BETWEEN %s AND %s AND r.run_type IS DISTINCT FROM 'llm'"
        " ORDER BY r.id, r.project_id, r.placed_at FOR NO KEY UPDATE OF r)"
        f" UPDATE tracing_run r SET {sets} FROM taken t JOIN said s USING (id, project_id)"
        " WHERE r.workspace_id = %s AND r.placed_at BETWEEN %s AND %s"
        " AND r.id = t.id AND r.project_id = t.project_id AND r.placed_at = t.placed_at"
    )
    between = [workspace_id, begin, end]
    columns = [list(column) for column in zip(*(sums[key] for key in keys), strict=True)]
    values: list[Any] = [[key[0] for key in keys], [key[1] for key in keys], *columns]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, *between, *between])
