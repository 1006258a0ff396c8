"""Conversations by page, the newest first: their turns in numbers, how they began and ended."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from apps.trace_store.store import counting, threads
from apps.trace_store.store.counting import Condition, Counting, Group
from apps.trace_store.store.metrics import ALL_MEASURES, Figures
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rollup_dimensions import bounded
from apps.trace_store.store.selecting import conditions_of, selection
from apps.trace_store.store.types import RunQuery

if TYPE_CHECKING:
    from apps.trace_store.store.protocol import RunStore

_FIRST, _LAST = "r.placed_at, r.id", "r.placed_at DESC, r.id DESC"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """A conversation; a turn is the root of a trace."""

    project_id: UUID
    thread_key: str
    figures: Figures = field(default_factory=Figures)
    """Of its turns: as many as it has, tokens and costs those of their traces."""
    first_start: datetime
    last_start: datetime
    last_end: datetime | None
    first_trace_id: UUID
    last_trace_id: UUID
    first_inputs: str | None
    """Previews, as the rest here."""
    last_outputs: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class ThreadPage:
    threads: Sequence[ThreadRow]
    total: int


class _Place(NamedTuple):
    last_start: datetime
    project_id: UUID
    thread_key: str


def threads_page(
    store: RunStore, workspace_id: UUID, query: RunQuery, *, offset: int, limit: int, whole: bool
) -> ThreadPage:
    """Threads with a turn that the query means; what is told is about those turns.

    With `whole`, about all their turns of the query's projects and time.
    """
    query = replace(bounded(query), is_root=True)
    if _is_ordered_by_rows(query):
        turns = [*conditions_of(workspace_id, query), (threads.TURN, [])]
        places, total = _by_rows(workspace_id, query, offset, limit)
    else:
        chosen = selection(store, workspace_id, query)
        turns = [*chosen.conditions, (threads.TURN, [])]
        places, total = _by_turns(workspace_id, turns, offset, limit)
    if whole:
        told = replace(query, where=None, where_root=None, where_any=None, where_thread=None)
        turns = [*conditions_of(workspace_id, told), (threads.TURN, [])]
    return ThreadPage(_told(workspace_id, turns, places), total)


def thread(
    store: RunStore, workspace_id: UUID, thread_key: str, query: RunQuery
) -> ThreadRow | None:
    """One thread, of its turns those that the query means."""
    query = replace(bounded(query), is_root=True)
    chosen = selection(store, workspace_id, query)
    of_it: Condition = (
        "md5(r.thread_key) = md5(%s) AND r.thread_key = %s",
        [thread_key, thread_key],
    )
    turns = [*chosen.conditions, (threads.TURN, []), of_it]
    places, _ = _by_turns(workspace_id, turns, 0, 1)
    return next(iter(_told(workspace_id, turns, places)), None)


def _is_ordered_by_rows(query: RunQuery) -> bool:
    others = (
        query.run_ids,
        query.trace_id,
        query.parent_run_id,
        query.reference_example_ids,
        query.run_type,
        query.has_error,
        query.where,
        query.where_root,
        query.where_any,
        query.where_thread,
    )
    ends = query.started_until is not None and query.started_until < datetime.now(UTC)
    return query.project_ids is not None and not ends and all(one is None for one in others)


def _by_rows(
    workspace_id: UUID, query: RunQuery, offset: int, limit: int
) -> tuple[list[_Place], int]:
    """From the rows that the settler keeps, and the threads that it has not seen yet."""
    projects = list(query.project_ids or ())
    fresh = {
        (row[0], row[1]): _Place(row[3], row[0], row[1])
        for row in threads.unsettled(workspace_id, projects)
    }
    since = query.started_from
    if since is not None:
        fresh = {key: place for key, place in fresh.items() if place.last_start >= since}
    where = "t.workspace_id = %s AND t.project_id = ANY(%s)"
    values: list[Any] = [workspace_id, projects]
    if since is not None:
        where += " AND t.last_start >= %s"
        values.append(since)
    known = "(t.project_id, t.thread_key) IN (SELECT * FROM unnest(%s::uuid[], %s::text[]))"
    keys = [[one[0] for one in fresh], [one[1] for one in fresh]]
    with raw_cursor() as cursor:
        cursor.execute(sql(f"SELECT count(*) FROM tracing_thread t WHERE {where}"), values)
        total: int = (cursor.fetchone() or (0,))[0]
        if fresh:
            cursor.execute(
                sql(f"SELECT count(*) FROM tracing_thread t WHERE {where} AND {known}"),
                [*values, *keys],
            )
            total += len(fresh) - (cursor.fetchone() or (0,))[0]
        cursor.execute(
            sql(
                "SELECT t.last_start, t.project_id, t.thread_key FROM tracing_thread t"
                f" WHERE {where} ORDER BY t.last_start DESC LIMIT %s"
            ),
            # What is unsettled may stand here too, and moves up or away.
            [*values, offset + limit + len(fresh)],
        )
        kept = [_Place(*row) for row in cursor if (row[1], row[2]) not in fresh]
    places = sorted([*kept, *fresh.values()], reverse=True)
    return places[offset : offset + limit], total


def _by_turns(
    workspace_id: UUID, turns: Sequence[Condition], offset: int, limit: int
) -> tuple[list[_Place], int]:
    where = " AND ".join(condition for condition, _ in turns)
    values = [value for _, given in turns for value in given]
    statement = (
        f"SELECT max({counting.STARTED}), r.project_id, r.thread_key, count(*) OVER ()"
        f" FROM tracing_run r WHERE r.workspace_id = %s AND {where}"
        " GROUP BY r.project_id, r.thread_key ORDER BY 1 DESC, 2 DESC, 3 DESC"
    )
    with raw_cursor() as cursor:
        cursor.execute(
            sql(f"{statement} OFFSET %s LIMIT %s"), [workspace_id, *values, offset, limit]
        )
        rows = cursor.fetchall()
        if not rows and offset:
            cursor.execute(sql(f"{statement} LIMIT 1"), [workspace_id, *values])
            return [], (cursor.fetchone() or (0, 0, 0, 0))[3]
    return [_Place(*row[:3]) for row in rows], rows[0][3] if rows else 0


def _told(
    workspace_id: UUID, turns: Sequence[Condition], places: Sequence[_Place]
) -> list[ThreadRow]:
    if not places:
        return []
    keys = [place.thread_key for place in places]
    here: list[Condition] = [
        *turns,
        ("r.project_id = ANY(%s)", [list({place.project_id for place in places})]),
        ("md5(r.thread_key) = ANY(SELECT md5(unnest(%s::text[])))", [keys]),
        ("r.thread_key = ANY(%s)", [keys]),
    ]
    ends = {(one.project_id, one.thread_key): one for one in _ends(workspace_id, here)}
    first = min((one.first_start for one in ends.values()), default=None)
    asked = Counting(
        workspace_id=workspace_id,
        parts=[here],
        groups=[Group("r.project_id"), Group("r.thread_key")],
        measures=ALL_MEASURES,
        of_traces=True,
        quantiles=(0.5, 0.99),
        details=True,
        since=None if first is None else first - counting.ABOVE,
    )
    figures = dict(counting.count(asked))
    found = [
        (ends.get(key), figures.get(key))
        for place in places
        if (key := (place.project_id, place.thread_key))
    ]
    return [
        replace(one, figures=numbers)
        for one, numbers in found
        if one is not None and numbers is not None
    ]


def _ends(workspace_id: UUID, turns: Sequence[Condition]) -> list[ThreadRow]:
    where = " AND ".join(condition for condition, _ in turns)
    values = [value for _, given in turns for value in given]
    statement = (
        "SELECT r.project_id, r.thread_key,"
        f" min({counting.STARTED}), max({counting.STARTED}), max(r.end_time),"
        f" (array_agg(r.trace_id ORDER BY {_FIRST}))[1],"
        f" (array_agg(r.trace_id ORDER BY {_LAST}))[1],"
        f" (array_agg(r.inputs_preview ORDER BY {_FIRST}))[1],"
        f" (array_agg(r.outputs_preview ORDER BY {_LAST}))[1],"
        f" (array_agg(r.error_preview ORDER BY {_LAST}))[1]"
        f" FROM tracing_run r WHERE r.workspace_id = %s AND {where}"
        " GROUP BY r.project_id, r.thread_key"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [workspace_id, *values])
        return [
            ThreadRow(
                project_id=row[0],
                thread_key=row[1],
                first_start=row[2],
                last_start=row[3],
                last_end=row[4],
                first_trace_id=row[5],
                last_trace_id=row[6],
                first_inputs=row[7],
                last_outputs=row[8],
                last_error=row[9],
            )
            for row in cursor
        ]
