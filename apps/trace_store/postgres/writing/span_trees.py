"""State of traces whose spans arrive leaf first: roots, waiting spans and moves of subtrees.

The key of a run never changes; a new ancestor changes only the beginning of its dotted order.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from apps.core.raw_sql import raw_cursor, sql

SEGMENT_LENGTH = 58
"""The length of a segment of a dotted order."""
TREE_RETENTION = timedelta(days=8)
"""State is deleted if no span of the trace arrived for this long."""


@dataclass(slots=True, kw_only=True)
class SpanTree:
    """A trace of spans: its time range, its root, and the placeholder of a missing root."""

    trace_id: UUID
    first_at: datetime
    last_at: datetime
    """The earliest and the latest start of its runs."""
    ended_at: datetime | None = None
    root_span: bytes | None = None
    root_run_id: UUID
    root_segment: str | None = None
    stand_in_at: datetime | None = None
    stand_in_project_id: UUID | None = None
    is_fresh: bool = True


@dataclass(frozen=True, slots=True)
class WaitingSpan:
    """A run that is placed below the root until its parent arrives."""

    trace_id: UUID
    awaits: UUID
    run_id: UUID
    partition_time: datetime


@dataclass(frozen=True, slots=True)
class SubtreeMove:
    """A new position of a run and its descendants."""

    trace_id: UUID
    old: str
    new: str
    run_id: UUID | None
    parent_run_id: UUID | None


_OPEN_TREES = """
INSERT INTO tracing_otlptrace AS t
    (workspace_id, trace_id, first_at, last_at, ended_at, root_span, root_run_id, root_segment)
SELECT %b, incoming.* FROM unnest(%b::uuid[], %b::timestamptz[], %b::timestamptz[],
    %b::timestamptz[], %b::bytea[], %b::uuid[], %b::text[]) AS incoming
ON CONFLICT (workspace_id, trace_id) DO UPDATE SET
    first_at = least(t.first_at, excluded.first_at),
    last_at = greatest(t.last_at, excluded.last_at),
    ended_at = greatest(t.ended_at, excluded.ended_at),
    updated_at = clock_timestamp()
RETURNING trace_id, first_at, last_at, ended_at, root_span, root_run_id, root_segment,
    stand_in_at, stand_in_project_id, xmax::text = '0'
"""


def open_trees(workspace_id: UUID, seen: Sequence[SpanTree]) -> dict[UUID, SpanTree]:
    """Lock and return the state of these traces, updated by `seen`, until the commit.

    A new trace is stored as given.
    """
    # Lock in one order, so that requests do not deadlock.
    ordered = sorted(seen, key=lambda item: item.trace_id)
    extent = ("trace_id", "first_at", "last_at", "ended_at")
    columns = (*extent, "root_span", "root_run_id", "root_segment")
    values = [[getattr(item, name) for item in ordered] for name in columns]
    with raw_cursor() as cursor:
        cursor.execute(_OPEN_TREES, [workspace_id, *values], binary=True)
        return {
            row[0]: SpanTree(
                trace_id=row[0],
                first_at=row[1],
                last_at=row[2],
                ended_at=row[3],
                root_span=row[4],
                root_run_id=row[5],
                root_segment=row[6],
                stand_in_at=row[7],
                stand_in_project_id=row[8],
                is_fresh=row[9],
            )
            for row in cursor
        }


def save_trees(workspace_id: UUID, trees: Collection[SpanTree]) -> None:
    """Store the changed roots of locked trees."""
    if not trees:
        return
    statement = (
        "UPDATE tracing_otlptrace t SET root_span = s.span, root_run_id = s.run,"
        " root_segment = s.segment, stand_in_at = s.at, stand_in_project_id = s.project"
        " FROM unnest(%b::uuid[], %b::bytea[], %b::uuid[], %b::text[], %b::timestamptz[],"
        " %b::uuid[]) AS s(trace, span, run, segment, at, project)"
        " WHERE t.workspace_id = %b AND t.trace_id = s.trace"
    )
    names = ("trace_id", "root_span", "root_run_id", "root_segment", "stand_in_at")
    values = [[getattr(tree, name) for tree in trees] for name in (*names, "stand_in_project_id")]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, workspace_id])


def dotted_orders(
    workspace_id: UUID, run_ids: Collection[UUID], first_at: datetime, last_at: datetime
) -> dict[UUID, str]:
    """The dotted orders of the stored runs with partition times in the range."""
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT id, dotted_order FROM trace_store_run WHERE workspace_id = %s AND id = ANY(%s)"
            " AND partition_time BETWEEN %s AND %s",
            [workspace_id, list(run_ids), first_at, last_at],
        )
        return dict(cursor)


START_TOLERANCE = timedelta(milliseconds=1)
"""JavaScript SDKs put a counter into the digits below milliseconds."""


def find_runs_by_start(
    workspace_id: UUID, wanted: Sequence[tuple[UUID, UUID, datetime, str]]
) -> list[tuple[UUID, UUID, str, datetime]]:
    """Find runs by project, start and name, with the key of the requesting span; nearest first.

    Rows are key, id, dotted order and partition time.
    """
    if not wanted:
        return []
    keys, projects, times, names = (list(column) for column in zip(*wanted, strict=True))
    statement = (
        "SELECT s.key, r.id, r.dotted_order, r.partition_time"
        " FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::text[])"
        " AS s(key, project, at, name)"
        " JOIN trace_store_run r ON r.workspace_id = %s AND r.project_id = s.project"
        " AND r.partition_time BETWEEN s.at - %s AND s.at + %s AND r.partition_time BETWEEN %s"
        " AND %s"
        " AND r.name = s.name AND r.id <> s.key AND r.is_created"
        " ORDER BY abs(extract(epoch FROM coalesce(r.start_time, r.partition_time) - s.at)), r.id"
    )
    slack = START_TOLERANCE
    values = [keys, projects, times, names, workspace_id, slack, slack]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, min(times) - slack, max(times) + slack])
        return cursor.fetchall()


def add_waiting(workspace_id: UUID, runs: Sequence[WaitingSpan]) -> None:
    """Store which runs await which parents; safe to repeat."""
    if not runs:
        return
    statement = (
        "INSERT INTO tracing_otlporphan (workspace_id, trace_id, awaits, run_id, partition_time)"
        " SELECT %b, incoming.* FROM unnest(%b::uuid[], %b::uuid[], %b::uuid[], %b::timestamptz[])"
        " AS incoming ON CONFLICT DO NOTHING"
    )
    names = ("trace_id", "awaits", "run_id", "partition_time")
    values = [[getattr(run, name) for run in runs] for name in names]
    with raw_cursor() as cursor:
        cursor.execute(statement, [workspace_id, *values])


def take_waiting(
    workspace_id: UUID, trace_ids: Collection[UUID], awaited: Collection[UUID]
) -> list[WaitingSpan]:
    """Delete and return the runs that await these parents."""
    with raw_cursor() as cursor:
        cursor.execute(
            "DELETE FROM tracing_otlporphan WHERE workspace_id = %s AND trace_id = ANY(%s)"
            " AND awaits = ANY(%s) RETURNING trace_id, awaits, run_id, partition_time",
            [workspace_id, list(trace_ids), list(awaited)],
        )
        return [WaitingSpan(*row) for row in cursor]


def move_subtrees(
    workspace_id: UUID, tree: SpanTree, old_root_id: UUID, moves: Sequence[SubtreeMove]
) -> None:
    """Move runs and their descendants below their parents."""
    if not moves:
        return
    statement = (
        "UPDATE trace_store_run r SET dotted_order = m.new || substr(r.dotted_order, {length} + 1),"
        " trace_id = %s, parent_run_id = CASE WHEN r.id = m.run THEN m.parent"
        " WHEN r.parent_run_id = %s THEN %s ELSE r.parent_run_id END"
        " FROM unnest(%s::text[], %s::text[], %s::uuid[], %s::uuid[]) AS m(old, new, run, parent)"
        " WHERE r.workspace_id = %s AND r.trace_id = %s AND r.partition_time BETWEEN %s AND %s"
        " AND left(r.dotted_order, {length}) = m.old"
    )
    with raw_cursor() as cursor:
        # Move the runs with a new parent first, then the rest of the old root.
        for length in (2 * SEGMENT_LENGTH + 1, SEGMENT_LENGTH):
            some = [move for move in moves if len(move.old) == length]
            if not some:
                continue
            cursor.execute(
                sql(statement.format(length=length)),
                [
                    tree.root_run_id,
                    old_root_id,
                    tree.root_run_id,
                    [move.old for move in some],
                    [move.new for move in some],
                    [move.run_id for move in some],
                    [move.parent_run_id for move in some],
                    workspace_id,
                    old_root_id,
                    tree.first_at,
                    tree.last_at,
                ],
            )


def insert_placeholder(workspace_id: UUID, tree: SpanTree, look: Mapping[str, Any]) -> None:
    """Insert a placeholder root with known values, so that the trace is visible at once."""
    columns = {
        "workspace_id": workspace_id,
        "id": tree.root_run_id,
        "project_id": tree.stand_in_project_id,
        "partition_time": tree.stand_in_at,
        "trace_id": tree.root_run_id,
        "dotted_order": tree.root_segment,
        "is_created": False,
        "start_time": tree.first_at,
        "run_type": "chain",
        "metadata": msgspec.json.encode({"otel.root": "not received"}).decode(),
        **look,
    }
    statement = (
        f"INSERT INTO trace_store_run ({', '.join(columns)}, received_at)"
        f" VALUES ({', '.join(['%s'] * len(columns))}, now()) ON CONFLICT DO NOTHING"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), list(columns.values()))


def delete_placeholder(
    workspace_id: UUID, run_id: UUID, project_id: UUID | None, partition_time: datetime
) -> None:
    """Delete the placeholder of a root that arrived."""
    with raw_cursor() as cursor:
        for table in ("trace_store_run", "trace_store_run_payload", "trace_store_run_terms"):
            cursor.execute(
                sql(
                    f"DELETE FROM {table} WHERE workspace_id = %s AND id = %s"
                    " AND project_id = %s AND partition_time = %s"
                ),
                [workspace_id, run_id, project_id, partition_time],
            )


def close_quiet_traces(quiet_for: timedelta) -> list[tuple[UUID, UUID, UUID, UUID, datetime]]:
    """End the placeholder roots of quiet traces at the last known end.

    Returns workspace, run, project, trace and partition time of each.
    """
    statement = """
    WITH quiet AS (
        UPDATE tracing_otlptrace SET closed_at = clock_timestamp()
        WHERE (workspace_id, trace_id) IN (
            SELECT workspace_id, trace_id FROM tracing_otlptrace
            WHERE stand_in_at IS NOT NULL AND updated_at <= clock_timestamp() - %s
              AND (closed_at IS NULL OR closed_at < updated_at)
            LIMIT 1000 FOR UPDATE SKIP LOCKED)
        RETURNING workspace_id, root_run_id, stand_in_project_id, stand_in_at, first_at, ended_at
    )
    UPDATE trace_store_run r
    SET start_time = q.first_at, end_time = coalesce(q.ended_at, q.first_at)
    FROM quiet q
    WHERE r.workspace_id = q.workspace_id AND r.id = q.root_run_id AND NOT r.is_created
      AND r.project_id = q.stand_in_project_id AND r.partition_time = q.stand_in_at
    RETURNING r.workspace_id, r.id, r.project_id, r.trace_id, r.partition_time
    """
    with raw_cursor() as cursor:
        return cursor.execute(statement, [quiet_for]).fetchall()


def delete_trees(workspace_id: UUID, trace_ids: Collection[UUID]) -> None:
    """Know nothing of these traces, whose runs were removed, unless spans of them come just now."""
    if not trace_ids:
        return
    with raw_cursor() as cursor:
        cursor.execute(
            "WITH gone AS (DELETE FROM tracing_otlptrace WHERE (workspace_id, trace_id) IN"
            " (SELECT workspace_id, trace_id FROM tracing_otlptrace WHERE workspace_id = %s"
            " AND trace_id = ANY(%s) FOR UPDATE SKIP LOCKED) RETURNING workspace_id, trace_id)"
            " DELETE FROM tracing_otlporphan o USING gone"
            " WHERE o.workspace_id = gone.workspace_id AND o.trace_id = gone.trace_id",
            [workspace_id, list(trace_ids)],
        )


def delete_old_trees() -> int:
    """Drop what is known of traces for which nothing came in `KEPT_FOR`."""
    with raw_cursor() as cursor:
        cursor.execute(
            "WITH old AS (DELETE FROM tracing_otlptrace WHERE updated_at < now() - %s"
            " RETURNING workspace_id, trace_id)"
            " DELETE FROM tracing_otlporphan o USING old"
            " WHERE o.workspace_id = old.workspace_id AND o.trace_id = old.trace_id",
            [TREE_RETENTION],
        )
        return cursor.rowcount
