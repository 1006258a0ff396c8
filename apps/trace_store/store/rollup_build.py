"""Making the rows of rollups: quarters from runs, hours from quarters, days from hours.

A span's counter of changes is read before its runs are, and written down as made after: a run that
commits in between has its change counted later and leaves the span dirty.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from apps.core.json import dumps_text
from apps.trace_store.store import counting
from apps.trace_store.store.counting import Counting, Group
from apps.trace_store.store.metrics import ALL_MEASURES, Figures
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rollup_dimensions import KINDS, NAMES, TRACES, WHOLE, Kind
from apps.trace_store.store.rollup_intervals import IN_PLACE, Span

NAMES_KEPT = {Span.QUARTER: 200, Span.HOUR: 400, Span.DAY: 800}
"""A span with more names than this has no rows of them: they would be as many as its runs."""
QUIET = timedelta(seconds=5)
"""A span that is still being written to would be dirty again at once."""
_AT_ONCE = 200

_DIMENSIONS = ("cut", "scope", "run_type", "status", "name", "model")
_COUNTS = ("runs", "errors", "pending", "model_calls", "streamed", "last_start")
COLUMNS = {
    "workspace_id": "uuid",
    "project_id": "uuid",
    "span": "int2",
    "begins_at": "timestamptz",
    "cut": "int2",
    "scope": "int2",
    "run_type": "text",
    "status": "text",
    "name": "text",
    "model": "text",
    **dict.fromkeys(_COUNTS[:-1], "int8"),
    "last_start": "timestamptz",
    **{str(measure): "bytea" for measure in ALL_MEASURES},
    "details": "bytea",  # in binary, jsonb is a version byte and text
}

_one_here = threading.Lock()


class Stretch(NamedTuple):
    workspace_id: UUID
    project_id: UUID
    span: Span
    begins_at: datetime


Rows = dict[Kind, Figures]


def make_dirty(seconds: float = 20.0, *, quiet: timedelta = QUIET) -> int:
    """Make dirty spans that are quiet, until none is left or the time is over; how many were made.

    Safe to repeat and to run several at once: each span has one maker at a time.
    """
    if not _one_here.acquire(blocking=False):
        return 0
    try:
        return _make_until(time.monotonic() + seconds, quiet)
    finally:
        _one_here.release()


def _make_until(deadline: float, quiet: timedelta) -> int:
    made = 0
    # Finer spans first: the coarser ones are made of them.
    for span in Span:
        after: Stretch | None = None
        while time.monotonic() < deadline:
            found = _dirty(span, quiet, after)
            for stretch in found:
                made += make(stretch)
                if time.monotonic() > deadline:
                    return made
            if len(found) < _AT_ONCE:
                break
            after = found[-1]
    return made


def _dirty(span: Span, quiet: timedelta, after: Stretch | None) -> list[Stretch]:
    key = "workspace_id, project_id, begins_at"
    beyond = "" if after is None else f"AND ({key}) > (%s, %s, %s)"
    # A coarser span whose parts are dirty cannot be made yet.
    parts = (
        "AND NOT EXISTS (SELECT FROM tracing_rollupspan p WHERE p.workspace_id = s.workspace_id"
        " AND p.project_id = s.project_id AND p.span = s.span - 1 AND p.touched <> p.made"
        " AND p.begins_at >= s.begins_at AND p.begins_at < s.begins_at + %s)"
    )
    values: list[object] = [span, quiet]
    if span is Span.QUARTER:
        parts = ""
    else:
        values.append(span.width)
    values += [] if after is None else [after.workspace_id, after.project_id, after.begins_at]
    statement = (
        f"SELECT {key} FROM tracing_rollupspan s WHERE span = %s AND touched <> made"
        f" AND touched_at <= clock_timestamp() - %s {parts} {beyond}"
        f" ORDER BY {key} LIMIT {_AT_ONCE}"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values)
        return [Stretch(row[0], row[1], span, row[2]) for row in cursor]


@transaction.atomic
def make(stretch: Stretch) -> bool:
    """Make the span's rows; False when another maker has it, or its parts are dirty."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"tracing.rollup:{stretch}"],
        )
        if cursor.fetchone() != (True,):
            return False
        cursor.execute(
            "SELECT touched FROM tracing_rollupspan WHERE workspace_id = %s AND project_id = %s"
            " AND span = %s AND begins_at = %s",
            list(stretch),
        )
        found = cursor.fetchone()
    if found is None:
        return False
    if stretch.span is Span.QUARTER:
        rows, has_names = _from_runs(stretch), True
    else:
        parts = _parts_have_names(stretch)
        if parts is None:
            return False
        rows, has_names = _from_parts(stretch), parts
    names = {(kind.name, kind.model) for kind in rows if kind.cut == NAMES}
    if not has_names or len(names) > NAMES_KEPT[stretch.span]:
        has_names = False
        rows = {kind: figures for kind, figures in rows.items() if kind.cut != NAMES}
    _replace(stretch, rows)
    with raw_cursor() as cursor:
        cursor.execute(
            "UPDATE tracing_rollupspan SET made = %s, made_at = clock_timestamp(), has_names = %s"
            " WHERE workspace_id = %s AND project_id = %s AND span = %s AND begins_at = %s",
            [found[0], has_names, *stretch],
        )
    return True


def _from_runs(stretch: Stretch) -> Rows:
    """All cuts of a quarter, from its runs."""
    named: Rows = {}
    for kind, figures in _counted(stretch):
        named[kind] = figures
    return _with_coarser(named)


def _counted(stretch: Stretch) -> Iterator[tuple[Kind, Figures]]:
    begin = stretch.begins_at
    here: list[counting.Condition] = [
        ("r.project_id = %s", [stretch.project_id]),
        ("r.placed_at >= %s AND r.placed_at < %s", [begin, begin + stretch.span.width]),
        (IN_PLACE, []),
    ]
    groups = [counting.TYPE, counting.STATUS, counting.NAME, "coalesce(r.model, '')"]
    for of_traces in (False, True):
        scope = str(TRACES) if of_traces else counting.SCOPE
        asked = Counting(
            workspace_id=stretch.workspace_id,
            parts=[[*here, ("r.parent_run_id IS NULL", [])] if of_traces else here],
            groups=[Group(expression) for expression in (scope, *groups)],
            of_traces=of_traces,
            details=True,
            since=begin - counting.ABOVE,
        )
        for values, figures in counting.count(asked):
            yield Kind(NAMES, *values), figures


def _with_coarser(named: Rows) -> Rows:
    rows = dict(named)
    for kind, figures in named.items():
        for coarse in (
            Kind(KINDS, kind.scope, kind.run_type, kind.status),
            Kind(WHOLE, kind.scope),
        ):
            rows.setdefault(coarse, Figures()).add(figures)
    return rows


def _parts_have_names(stretch: Stretch) -> bool | None:
    """Whether all parts have rows of names; None when one of them is dirty."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT bool_and(touched = made), bool_and(has_names) FROM tracing_rollupspan"
            " WHERE workspace_id = %s AND project_id = %s AND span = %s"
            " AND begins_at >= %s AND begins_at < %s",
            [
                stretch.workspace_id,
                stretch.project_id,
                stretch.span - 1,
                stretch.begins_at,
                stretch.begins_at + stretch.span.width,
            ],
        )
        are_clean, have_names = cursor.fetchone() or (None, None)
        return bool(have_names) if are_clean else None


def _from_parts(stretch: Stretch) -> Rows:
    rows: Rows = {}
    statement = (
        f"SELECT {', '.join(_DIMENSIONS)}, {', '.join(_COUNTS)},"
        f" {', '.join(ALL_MEASURES)}, details::text FROM tracing_rollup"
        " WHERE workspace_id = %s AND project_id = %s AND span = %s"
        " AND begins_at >= %s AND begins_at < %s"
    )
    with raw_cursor() as cursor:
        cursor.execute(
            sql(statement),
            [
                stretch.workspace_id,
                stretch.project_id,
                stretch.span - 1,
                stretch.begins_at,
                stretch.begins_at + stretch.span.width,
            ],
            binary=True,
        )
        for row in cursor:
            kind = Kind(*row[:6])
            rows.setdefault(kind, Figures()).add(counting.stored(row[6:], ALL_MEASURES))
    return rows


def _replace(stretch: Stretch, rows: Mapping[Kind, Figures]) -> None:
    with raw_cursor() as cursor:
        cursor.execute(
            "DELETE FROM tracing_rollup WHERE workspace_id = %s AND project_id = %s"
            " AND span = %s AND begins_at = %s",
            list(stretch),
        )
        statement = sql(f"COPY tracing_rollup ({', '.join(COLUMNS)}) FROM STDIN (FORMAT binary)")
        with cursor.copy(statement) as copy:
            copy.set_types(list(COLUMNS.values()))
            for kind, figures in rows.items():
                copy.write_row([*stretch, *kind, *_values(figures)])


def _values(figures: Figures) -> Iterator[object]:
    for name in _COUNTS:
        yield getattr(figures, name)
    for measure in ALL_MEASURES:
        distribution = figures.measures.get(measure)
        yield None if distribution is None else distribution.to_bytes()
    yield b"\x01" + dumps_text(figures.details).encode() if figures.details else None
