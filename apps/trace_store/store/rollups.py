"""Which spans of time have rollups, and whether they still say the truth.

The settler marks the spans that a change of a run touches; `store.making` makes them again. A span
is clean while its two counters agree, and nothing in it is unsettled: then its rows stand for its
runs, exactly. Everything else is counted from the runs.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.trace_store.dotted_order import times_of
from apps.trace_store.postprocess import Touched
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rollup_intervals import EARLIEST, LATEST, Span

Stretch = tuple[UUID, datetime]
"""A project and the beginning of a span."""
_LONGEST_CALL = timedelta(hours=6)
_LOOKED_AT = 20_000

_MARK = """
INSERT INTO tracing_rollupspan AS s
    (workspace_id, project_id, span, begins_at, touched, made, touched_at)
SELECT %s, m.project_id, m.span, m.begins_at, 1, 0, clock_timestamp()
FROM unnest(%s::uuid[], %s::int2[], %s::timestamptz[]) AS m(project_id, span, begins_at)
ORDER BY m.project_id, m.span, m.begins_at
ON CONFLICT (workspace_id, project_id, span, begins_at) DO UPDATE SET
    touched = s.touched + 1,
    touched_at = excluded.touched_at
"""


def settle(workspace_id: UUID, touched: Sequence[Touched]) -> None:
    """Mark what the runs are counted in, and what counts them in: the runs above them."""
    keys = [(one.run_id, one.project_id, one.placed_at) for one in touched]
    mark(workspace_id, quarters_of(workspace_id, keys))


def mark(workspace_id: UUID, quarters: Iterable[Stretch]) -> None:
    """Say, in the caller's transaction, that runs in these quarters have changed."""
    spans = sorted(
        {
            (project_id, int(span), span.begin(begin))
            for project_id, begin in quarters
            for span in Span
        }
    )
    if not spans:
        return
    with raw_cursor() as cursor:
        cursor.execute(
            _MARK,
            [
                workspace_id,
                [one[0] for one in spans],
                [one[1] for one in spans],
                [one[2] for one in spans],
            ],
        )


def quarters_of(workspace_id: UUID, keys: Sequence[tuple[UUID, UUID, datetime]]) -> set[Stretch]:
    """The quarters whose figures depend on these runs: their own, and those of the runs above.

    What a model's call says also decides whether runs below it count, so all quarters of its
    duration belong to it.
    """
    if not keys:
        return set()
    found = {(project_id, _quarter(placed_at)) for _, project_id, placed_at in keys}
    times = [key[2] for key in keys]
    statement = (
        "SELECT r.project_id, r.dotted_order,"
        " CASE WHEN r.run_type = 'llm' THEN r.end_time END, r.placed_at"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS k(id, project_id, placed_at)"
        " JOIN tracing_run r ON r.workspace_id = %s AND r.id = k.id"
        " AND r.project_id = k.project_id AND r.placed_at = k.placed_at"
        " AND r.placed_at BETWEEN %s AND %s"
    )
    columns: list[Any] = [[key[0] for key in keys], [key[1] for key in keys], times]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*columns, workspace_id, min(times), max(times)])
        for project_id, dotted_order, ended_at, placed_at in cursor:
            for moment in times_of(dotted_order):
                found.add((project_id, _quarter(moment)))
            if ended_at is not None:
                last = min(ended_at, placed_at + _LONGEST_CALL)
                moment = placed_at
                while (moment := moment + Span.QUARTER.width) < last + Span.QUARTER.width:
                    found.add((project_id, _quarter(moment)))
    return found


def unsettled_quarters(workspace_id: UUID) -> set[Stretch]:
    """The quarters that the settler has not marked yet.

    When very much is unsettled, older traces whose later runs are meant are left out: their counts
    are right, their tokens are as of the settler.
    """
    statement = (
        "SELECT k.run_id, k.project_id, k.placed_at FROM tracing_unsettled u,"
        " unnest(u.run_ids, u.project_ids, u.placed_at) AS k(run_id, project_id, placed_at)"
        " WHERE u.workspace_id = %s"
    )
    with raw_cursor() as cursor:
        cursor.execute(statement, [workspace_id], binary=True)
        keys = cursor.fetchall()
    if len(keys) <= _LOOKED_AT:
        return quarters_of(workspace_id, keys)
    return {(project_id, _quarter(placed_at)) for _, project_id, placed_at in keys}


def forget_project(workspace_id: UUID, project_id: UUID) -> None:
    """Take away what is known of a project that is being removed."""
    with raw_cursor() as cursor:
        for table in ("tracing_rollupspan", "tracing_rollup", "tracing_thread"):
            cursor.execute(
                sql(f"DELETE FROM {table} WHERE workspace_id = %s AND project_id = %s"),
                [workspace_id, project_id],
            )


def _quarter(moment: datetime) -> datetime:
    return Span.QUARTER.begin(min(max(moment, EARLIEST), LATEST))
