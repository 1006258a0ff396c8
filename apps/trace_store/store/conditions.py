"""What a query asks of a run's row, as SQL over `tracing_run r`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.trace_store.filters import all_of
from apps.trace_store.store.filtering import Compiled, compile_where
from apps.trace_store.store.locating import locate, probable_days
from apps.trace_store.store.misplaced_runs import astray
from apps.trace_store.store.of_threads import thread_conditions
from apps.trace_store.store.pending_deletions import not_doomed
from apps.trace_store.store.raw import raw_cursor
from apps.trace_store.store.related import FEW_TRACES, related_conditions
from apps.trace_store.store.rollup_dimensions import bounded, conjuncts, equation
from apps.trace_store.store.rollup_intervals import EARLIEST, LATEST, Span
from apps.trace_store.store.rows import SKEW
from apps.trace_store.store.types import RunQuery

Condition = tuple[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, made ready: its conditions but for projects and place, and where it may look."""

    workspace_id: UUID
    query: RunQuery
    conditions: Sequence[Condition]
    where: Compiled | None
    since: datetime | None
    until: datetime | None
    is_pointed: bool
    """Whether ids name the runs: they are few, and found without an order."""
    is_few: bool = False
    """Whether they are found by their traces or their thread, and put in order then."""


def ask(workspace_id: UUID, query: RunQuery) -> Asked:
    if query.is_root and query.where_root is not None:
        # Then the run is the root, and what finds runs finds it.
        where_both = all_of([query.where, query.where_root])
        query = replace(query, where=where_both, where_root=None)
    query = bounded(query)
    conditions = [
        *_conditions(query),
        *related_conditions(workspace_id, query),
        *thread_conditions(workspace_id, query),
        *([] if query.with_doomed else [not_doomed(workspace_id)]),
    ]
    since, until = _places(workspace_id, query)
    for condition, begin, end in _pointed(workspace_id, query):
        conditions.append(condition)
        since = later(since, begin)
        until = _earlier(until, end)
    where = None
    if query.where is not None:
        where = compile_where(workspace_id, query.where, table="r")
        if not where.is_exact and _is_all_settled(workspace_id):
            # What comes from here on is as if it came after the answer.
            where = compile_where(workspace_id, query.where, table="r", as_settled=True)
        conditions.append((where.sql, where.values))
    pointers = (query.run_ids, query.trace_id, query.parent_run_id, query.reference_example_ids)
    is_few = _is_of_one_thread(query) or any(text == FEW_TRACES for text, _ in conditions)
    is_pointed = is_few or any(one is not None for one in pointers)
    return Asked(workspace_id, query, conditions, where, since, until, is_pointed, is_few)


def _is_all_settled(workspace_id: UUID) -> bool:
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT NOT EXISTS (SELECT FROM tracing_unsettled WHERE workspace_id = %s)",
            [workspace_id],
        )
        return cursor.fetchone() == (True,)


def _is_of_one_thread(query: RunQuery) -> bool:
    """Whether turns of one conversation are asked for: they have an index."""
    parts = () if query.where is None else conjuncts(query.where)
    is_named = any(equation(part, "thread_id") is not None for part in parts)
    return is_named and query.is_root is True and query.project_ids is not None


def _places(workspace_id: UUID, query: RunQuery) -> tuple[datetime | None, datetime | None]:
    """Between what times the runs are placed that began when the query says."""
    begin, end = query.started_from, query.started_until
    if begin is None and end is None:
        return None, None
    begin = None if begin is None else max(begin.astimezone(UTC), EARLIEST)
    end = None if end is None else min(end.astimezone(UTC), LATEST)
    since = None if begin is None else begin - SKEW
    until = None if end is None else end + SKEW
    if not query.project_ids:
        return since, until
    started = (begin, None if end is None else end + timedelta.resolution)
    others = astray(workspace_id, query.project_ids, placed=(since, until), started=started)
    if others is None:
        return since, until
    places = [placed_at for placed_at, _ in others]
    if begin is not None:
        since = min([Span.QUARTER.begin(begin), *places])
    if end is not None:
        last = Span.QUARTER.begin(end) + Span.QUARTER.width - timedelta.resolution
        until = max([last, *places])
    return since, until


def _conditions(query: RunQuery) -> Iterator[Condition]:
    if query.reference_example_ids is not None:
        yield "r.reference_example_id = ANY(%s)", [list(query.reference_example_ids)]
    if query.run_type is not None:
        yield "coalesce(r.run_type, 'chain') = %s", [query.run_type]
    if query.is_root is not None:
        yield f"r.parent_run_id IS {'' if query.is_root else 'NOT '}NULL", []
    if query.has_error is not None:
        yield f"r.error_preview IS {'NOT ' if query.has_error else ''}NULL", []
    if query.started_from is not None:
        yield "coalesce(r.start_time, r.placed_at) >= %s", [query.started_from]
    if query.started_until is not None:
        yield "coalesce(r.start_time, r.placed_at) <= %s", [query.started_until]


def _pointed(
    workspace_id: UUID, query: RunQuery
) -> Iterator[tuple[Condition, datetime | None, datetime | None]]:
    """Conditions by id, with the times between which such runs are placed."""
    if query.run_ids is not None:
        begin, end = _days_of(workspace_id, query.run_ids)
        yield ("r.id = ANY(%s)", [list(query.run_ids)]), begin, end
    if query.trace_id is not None:
        yield ("r.trace_id = %s", [query.trace_id]), None, None
    if query.parent_run_id is not None:
        yield ("r.parent_run_id = %s", [query.parent_run_id]), None, None
        # Children have no index of their own; they are of the parent's trace.
        if parent := locate(workspace_id, [query.parent_run_id]).get(query.parent_run_id):
            yield ("r.trace_id = %s", [parent.place.trace_id]), parent.place.placed_at - SKEW, None


def _days_of(
    workspace_id: UUID, run_ids: Sequence[UUID]
) -> tuple[datetime, datetime] | tuple[None, None]:
    """Between what times all of these runs are placed, if their ids tell it rightly."""
    near = probable_days(run_ids)
    if near is None:
        return None, None
    there = locate(workspace_id, run_ids)
    is_right = all(
        run_id in there and near[0] <= there[run_id].place.placed_at <= near[1]
        for run_id in run_ids
    )
    return near if is_right else (None, None)


def later(one: datetime | None, other: datetime | None) -> datetime | None:
    """The later of two beginnings, of which either may be open."""
    return max((time for time in (one, other) if time is not None), default=None)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((time for time in (one, other) if time is not None), default=None)
