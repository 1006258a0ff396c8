"""Tokens and costs of traces, written to the runs above what says them: `sum_…` of `tracing_run`.

What a run shows is `coalesce(sum_x, x)`: of a model's call its own, of any other run the sum of
what is below it, see `store.totals`.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from apps.trace_store.dotted_order import root_placed_at
from apps.trace_store.postprocess import Touched
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rollup_intervals import EARLIEST, LATEST
from apps.trace_store.store.rows import SKEW
from apps.trace_store.store.totals import Source, Totals
from apps.trace_store.store.types import Usage

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

Key = tuple[UUID, UUID]
"""Run and project."""
Trace = tuple[UUID, UUID]
"""Project and trace."""


def settle_sums(workspace_id: UUID, touched: Sequence[Touched]) -> None:
    """Make the sums of these runs' traces what their runs say. Safe to repeat."""
    if not touched:
        return
    since = _since(workspace_id, touched)
    sources: dict[Trace, list[Source]] = defaultdict(list)
    stale: dict[Key, tuple[Any, ...]] = {}
    until = since
    for row in _told(workspace_id, {(one.project_id, one.trace_id) for one in touched}, since):
        run_id, project_id, placed_at, trace_id, dotted_order, run_type, is_summed = row[:7]
        usage = Usage(**dict(zip(KINDS, row[7:13], strict=True)))
        if usage.is_known:
            source = Source(dotted_order, run_type == "llm", usage)
            sources[project_id, trace_id].append(source)
        if is_summed:
            stale[run_id, project_id] = row[13:]
        until = max(until, placed_at)
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
        _write(workspace_id, written, since, min(until, LATEST) + SKEW)


def _since(workspace_id: UUID, touched: Sequence[Touched]) -> datetime:
    """No run of these traces is placed before: each says in its dotted order when its root began.

    Ids do not tell it: old work may be sent under new ones.
    """
    times = [one.placed_at for one in touched]
    with raw_cursor() as cursor:
        cursor.execute(
            # The time's digits are in the order of time.
            "SELECT min(left(r.dotted_order, 22))"
            " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[])"
            " AS k(id, project_id, placed_at)"
            " JOIN tracing_run r ON r.workspace_id = %s AND r.id = k.id"
            " AND r.project_id = k.project_id AND r.placed_at = k.placed_at"
            " WHERE r.placed_at BETWEEN %s AND %s",
            [
                [one.run_id for one in touched],
                [one.project_id for one in touched],
                times,
                workspace_id,
                min(times),
                max(times),
            ],
        )
        (earliest,) = cursor.fetchone() or (None,)
    begins = min(times) if earliest is None else min(root_placed_at(earliest), *times)
    # A clock may be a little off.
    return max(begins, EARLIEST) - SKEW


def _told(
    workspace_id: UUID, traces: Collection[Trace], since: datetime
) -> Iterator[tuple[Any, ...]]:
    """The runs that say something of usage, and those that have sums."""
    trace_ids = list({trace_id for _, trace_id in traces})
    project_ids = list({project_id for project_id, _ in traces})
    statement = (
        f"SELECT id, project_id, placed_at, trace_id, dotted_order, run_type, {_IS_SUMMED},"
        f" {_OWN}, {_SUMS} FROM tracing_run"
        " WHERE workspace_id = %s AND trace_id = ANY(%s) AND project_id = ANY(%s)"
        " AND placed_at >= %s"
        f" AND (total_tokens IS NOT NULL OR total_cost IS NOT NULL OR {_IS_SUMMED})"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [workspace_id, trace_ids, project_ids, since], binary=True)
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
