"""Which spans of rollups answer for a time, and which runs must be counted beside them."""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.trace_store.store import counting, rollups
from apps.trace_store.store.counting import Condition
from apps.trace_store.store.metrics import Figures, Measure, ends_of
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.rollup_dimensions import NAMES, Kind, Rolled
from apps.trace_store.store.rollup_intervals import ASTRAY, IN_PLACE, Span

SKEW = timedelta(days=1)
_FEW = 8
_COUNTS = ("runs", "errors", "pending", "model_calls", "streamed", "last_start")


@dataclass(frozen=True, slots=True)
class Cell:
    """A span whose rows stand for its runs, and the bucket of time that it belongs to."""

    project_id: UUID
    span: Span
    begins_at: datetime
    bucket: int

    @property
    def ends_at(self) -> datetime:
        return self.begins_at + self.span.width


@dataclass(slots=True)
class Plan:
    """Spans to be added up, and quarters whose runs must be counted."""

    edges: Sequence[datetime]
    cells: list[Cell] = field(default_factory=list)
    quarters: set[tuple[UUID, datetime]] = field(default_factory=set)

    def parts(self, workspace_id: UUID, project_ids: Sequence[UUID]) -> list[list[Condition]]:
        """The runs to be counted, as sets without a common member."""
        within: Condition = (
            f"{counting.STARTED} >= %s AND {counting.STARTED} < %s",
            [self.edges[0], self.edges[-1]],
        )
        parts = [[*where, (IN_PLACE, []), within] for where in self._ranges()]
        return parts + _astray(workspace_id, project_ids, self.edges[0], self.edges[-1])

    def _ranges(self) -> list[list[Condition]]:
        ranges = list(joined(self.quarters))
        if len(ranges) <= _FEW:
            return [
                [
                    ("r.project_id = %s", [project_id]),
                    ("r.placed_at >= %s AND r.placed_at < %s", [begin, end]),
                ]
                for project_id, begin, end in ranges
            ]
        projects = [project_id for project_id, _, _ in ranges]
        begins = [begin for _, begin, _ in ranges]
        ends = [end for _, _, end in ranges]
        in_one = (
            "EXISTS (SELECT FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[])"
            " AS q(project_id, begins_at, ends_at) WHERE q.project_id = r.project_id"
            " AND r.placed_at >= q.begins_at AND r.placed_at < q.ends_at)"
        )
        return [
            [
                ("r.project_id = ANY(%s)", [list(set(projects))]),
                ("r.placed_at >= %s AND r.placed_at < %s", [min(begins), max(ends)]),
                (in_one, [projects, begins, ends]),
            ]
        ]

    @property
    def since(self) -> datetime:
        """Nothing that the runs to be counted depend on is placed before."""
        return min((begin for _, begin in self.quarters), default=self.edges[0]) - counting.ABOVE


def _astray(
    workspace_id: UUID, project_ids: Sequence[UUID], first: datetime, last: datetime
) -> list[list[Condition]]:
    """The runs that no quarter holds, by their ids: the planner would take them for very many."""
    # Of each project in the order of their own index, so that no other is taken for it.
    statement = (
        "SELECT a.id, a.placed_at FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
        " (SELECT r.id, r.placed_at FROM tracing_run r WHERE r.workspace_id = %s"
        f" AND r.project_id = p.id AND {ASTRAY} AND r.start_time >= %s AND r.start_time < %s"
        " AND r.placed_at >= %s AND r.placed_at < %s ORDER BY r.start_time OFFSET 0) a"
    )
    values = [list(project_ids), workspace_id, first, last, first - SKEW, last + SKEW]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        found = cursor.fetchall()
    if not found:
        return []
    times = [placed_at for _, placed_at in found]
    return [
        [
            ("r.project_id = ANY(%s)", [list(project_ids)]),
            ("r.id = ANY(%s)", [[run_id for run_id, _ in found]]),
            ("r.placed_at BETWEEN %s AND %s", [min(times), max(times)]),
            (f"CASE WHEN {ASTRAY} THEN true ELSE false END", []),
            ("r.start_time >= %s AND r.start_time < %s", [first, last]),
        ]
    ]


def plan(
    workspace_id: UUID, project_ids: Sequence[UUID], edges: Sequence[datetime], asked: Rolled
) -> Plan:
    """How to answer for the time from the first edge to before the last, bucket by bucket.

    What is unsettled is looked up before what is clean: a run that is settled in between has made
    its span dirty by then.
    """
    made = Plan(edges)
    projects = set(project_ids)
    unsettled = {one for one in rollups.unsettled_quarters(workspace_id) if one[0] in projects}
    open_spans: Collection[tuple[UUID, datetime]] | None = None
    seen: set[tuple[UUID, datetime]] = set()
    for span in reversed(Span):
        waiting = {(project_id, span.begin(begin)) for project_id, begin in unsettled}
        unusable: list[tuple[UUID, datetime]] = []
        for row in _states(workspace_id, project_ids, span, edges, open_spans):
            project_id, begins_at, is_clean, has_names = row
            ends_at = begins_at + span.width
            if ends_at <= edges[0] or begins_at >= edges[-1]:
                continue
            here = (project_id, begins_at)
            if span is Span.QUARTER:
                seen.add(here)
            bucket = _bucket(edges, begins_at, ends_at)
            is_fine = has_names or asked.cut != NAMES
            if is_clean and is_fine and bucket is not None and here not in waiting:
                made.cells.append(Cell(project_id, span, begins_at, bucket))
            else:
                unusable.append(here)
        open_spans = unusable
    made.quarters.update(open_spans or ())
    first = Span.QUARTER.begin(edges[0])
    made.quarters.update(one for one in unsettled - seen if first <= one[1] < edges[-1])
    return made


def _states(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    span: Span,
    edges: Sequence[datetime],
    inside: Collection[tuple[UUID, datetime]] | None,
) -> list[tuple[UUID, datetime, bool, bool]]:
    """Spans with what is known of them; of coarser spans only the parts, where those are given."""
    columns = "s.project_id, s.begins_at, s.touched = s.made, s.has_names"
    if inside is None:
        source = "tracing_rollupspan s WHERE s.project_id = ANY(%s)"
        values: list[Any] = [list(project_ids)]
    elif inside:
        wider = Span(span + 1)
        source = (
            "unnest(%s::uuid[], %s::timestamptz[]) AS w(project_id, begins_at)"
            " JOIN tracing_rollupspan s ON s.project_id = w.project_id"
            " AND s.begins_at >= w.begins_at AND s.begins_at < w.begins_at + %s WHERE true"
        )
        values = [[one[0] for one in inside], [one[1] for one in inside], wider.width]
    else:
        return []
    statement = (
        f"SELECT {columns} FROM {source} AND s.workspace_id = %s AND s.span = %s"
        " AND s.begins_at >= %s AND s.begins_at < %s"
    )
    values += [workspace_id, int(span), edges[0] - span.width, edges[-1]]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        return cursor.fetchall()


def _bucket(edges: Sequence[datetime], begin: datetime, end: datetime) -> int | None:
    """The bucket that the span lies in wholly."""
    at = bisect_right(edges, begin) - 1
    return at if 0 <= at < len(edges) - 1 and end <= edges[at + 1] else None


def joined(
    quarters: Iterable[tuple[UUID, datetime]],
) -> Iterator[tuple[UUID, datetime, datetime]]:
    """The quarters as ranges, each as long as it goes."""
    width = Span.QUARTER.width
    current: tuple[UUID, datetime, datetime] | None = None
    for project_id, begin in sorted(quarters):
        if current is not None and current[0] == project_id and current[2] == begin:
            current = (project_id, current[1], begin + width)
            continue
        if current is not None:
            yield current
        current = (project_id, begin, begin + width)
    if current is not None:
        yield current


def ends(
    workspace_id: UUID, cells: Sequence[Cell], asked: Rolled, measures: Sequence[Measure]
) -> Iterator[tuple[Cell, Mapping[Measure, tuple[Decimal, Decimal]]]]:
    """The cells' rows that the question is about, each with the least and the most it knows of."""
    columns = [f"t.{measure}" for measure in measures]
    for cell, _, row in _rows(workspace_id, cells, asked, columns):
        yield (
            cell,
            {
                measure: ends_of(value)
                for measure, value in zip(measures, row, strict=True)
                if value is not None
            },
        )


def rows(
    workspace_id: UUID,
    cells: Sequence[Cell],
    asked: Rolled,
    measures: Sequence[Measure],
    *,
    details: bool,
) -> Iterator[tuple[Cell, Kind, Figures]]:
    """The rows of the cells that the question is about."""
    columns = [
        *(f"t.{name}" for name in _COUNTS),
        *(f"t.{measure}" for measure in measures),
        *(["t.details::text"] if details else []),
    ]
    for cell, kind, row in _rows(workspace_id, cells, asked, columns):
        yield cell, kind, counting.stored(row, measures)


def _rows(
    workspace_id: UUID, cells: Sequence[Cell], asked: Rolled, columns: Sequence[str]
) -> Iterator[tuple[Cell, Kind, Sequence[Any]]]:
    if not cells or not asked.scopes:
        return
    statement = (
        "SELECT c.place, t.cut, t.scope, t.run_type, t.status, t.name, t.model"
        f"{''.join(f', {column}' for column in columns)}"
        " FROM unnest(%s::uuid[], %s::int2[], %s::timestamptz[]) WITH ORDINALITY"
        " AS c(project_id, span, begins_at, place)"
        " JOIN tracing_rollup t ON t.workspace_id = %s AND t.project_id = c.project_id"
        " AND t.span = c.span AND t.begins_at = c.begins_at"
        " WHERE t.cut = %s AND t.scope = ANY(%s)"
        + "".join(f" AND t.{column} = %s" for column, _ in asked.equations)
    )
    values: list[Any] = [
        [cell.project_id for cell in cells],
        [int(cell.span) for cell in cells],
        [cell.begins_at for cell in cells],
        workspace_id,
        asked.cut,
        list(asked.scopes),
        *(value for _, value in asked.equations),
    ]
    kept: dict[Kind, bool] = {}
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), values, binary=True)
        for row in cursor:
            kind = Kind(*row[1:7])
            if kind not in kept:
                kept[kind] = asked.keeps(kind)
            if kept[kind]:
                yield cells[row[0] - 1], kind, row[7:]
