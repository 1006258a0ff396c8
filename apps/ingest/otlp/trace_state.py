"""State of traces whose spans arrive leaf first: their roots, and spans that await a parent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from apps.core.connections import raw_cursor, sql
from apps.trace_store import PlaceholderRoot

STATE_RETENTION = timedelta(days=8)
"""State is deleted if no span of the trace arrived for this long."""
# Skip locked rows: a request with spans of the trace holds the lock and waits for the runs.
REMOVAL_STATEMENT = """
WITH removed AS (
    DELETE FROM ingest_otlptrace WHERE (workspace_id, trace_id) IN (
        SELECT t.workspace_id, t.trace_id FROM ingest_otlptrace t
        JOIN {runs} r ON r.workspace_id = t.workspace_id AND r.trace_id = t.trace_id AND r.is_root
        FOR UPDATE OF t SKIP LOCKED)
    RETURNING workspace_id, trace_id
)
DELETE FROM ingest_otlpwaitingspan w USING removed
WHERE w.workspace_id = removed.workspace_id AND w.trace_id = removed.trace_id
"""
"""Deletes the state of removed traces, see `apps.trace_store.hooks.register_removal`."""
_BATCH_SIZE = 1000


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
    placeholder_at: datetime | None = None
    placeholder_project_id: UUID | None = None
    is_new: bool = True

    @property
    def placeholder(self) -> PlaceholderRoot | None:
        """The stored placeholder root, if there is one."""
        if self.placeholder_at is None or self.placeholder_project_id is None:
            return None
        return PlaceholderRoot(self.root_run_id, self.placeholder_project_id, self.placeholder_at)


@dataclass(frozen=True, slots=True)
class WaitingSpan:
    """A run that is placed below the root until its parent arrives."""

    trace_id: UUID
    awaits: UUID
    run_id: UUID
    partition_time: datetime


_UPSERT_TREES = """
INSERT INTO ingest_otlptrace AS t
    (workspace_id, trace_id, first_at, last_at, ended_at, root_span, root_run_id, root_segment)
SELECT %b, input.* FROM unnest(%b::uuid[], %b::timestamptz[], %b::timestamptz[], %b::timestamptz[],
    %b::bytea[], %b::uuid[], %b::text[]) AS input
ON CONFLICT (workspace_id, trace_id) DO UPDATE SET
    first_at = least(t.first_at, excluded.first_at),
    last_at = greatest(t.last_at, excluded.last_at),
    ended_at = greatest(t.ended_at, excluded.ended_at),
    updated_at = clock_timestamp()
RETURNING trace_id, first_at, last_at, ended_at, root_span, root_run_id, root_segment,
    placeholder_at, placeholder_project_id, xmax::text = '0'
"""


def lock_trees(workspace_id: UUID, summaries: Sequence[SpanTree]) -> dict[UUID, SpanTree]:
    """Update the state of the traces by the summaries; return it by trace, locked until commit.

    The summary of a new trace is stored unchanged.
    """
    # Lock in one order, so that requests do not deadlock.
    ordered = sorted(summaries, key=lambda summary: summary.trace_id)
    times = ("first_at", "last_at", "ended_at")
    columns = ("trace_id", *times, "root_span", "root_run_id", "root_segment")
    values = [[getattr(summary, name) for summary in ordered] for name in columns]
    with raw_cursor() as cursor:
        cursor.execute(_UPSERT_TREES, [workspace_id, *values], binary=True)
        return {
            row[0]: SpanTree(
                trace_id=row[0],
                first_at=row[1],
                last_at=row[2],
                ended_at=row[3],
                root_span=row[4],
                root_run_id=row[5],
                root_segment=row[6],
                placeholder_at=row[7],
                placeholder_project_id=row[8],
                is_new=row[9],
            )
            for row in cursor
        }


def save_trees(workspace_id: UUID, trees: Collection[SpanTree]) -> None:
    """Store the changed roots of locked trees."""
    if not trees:
        return
    statement = (
        "UPDATE ingest_otlptrace t SET root_span = s.span, root_run_id = s.run,"
        " root_segment = s.segment, placeholder_at = s.at, placeholder_project_id = s.project"
        " FROM unnest(%b::uuid[], %b::bytea[], %b::uuid[], %b::text[], %b::timestamptz[],"
        " %b::uuid[]) AS s(trace, span, run, segment, at, project)"
        " WHERE t.workspace_id = %b AND t.trace_id = s.trace"
    )
    names = ("trace_id", "root_span", "root_run_id", "root_segment", "placeholder_at")
    values = [
        [getattr(tree, name) for tree in trees] for name in (*names, "placeholder_project_id")
    ]
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [*values, workspace_id])


def add_waiting(workspace_id: UUID, runs: Sequence[WaitingSpan]) -> None:
    """Store the runs that await a parent. Safe to repeat."""
    if not runs:
        return
    statement = (
        "INSERT INTO ingest_otlpwaitingspan"
        " (workspace_id, trace_id, awaits, run_id, partition_time)"
        " SELECT %b, input.* FROM unnest(%b::uuid[], %b::uuid[], %b::uuid[], %b::timestamptz[])"
        " AS input ON CONFLICT DO NOTHING"
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
            "DELETE FROM ingest_otlpwaitingspan WHERE workspace_id = %s AND trace_id = ANY(%s)"
            " AND awaits = ANY(%s) RETURNING trace_id, awaits, run_id, partition_time",
            [workspace_id, list(trace_ids), list(awaited)],
        )
        return [WaitingSpan(*row) for row in cursor]


@dataclass(frozen=True, slots=True)
class QuietTrace:
    """A trace with a placeholder root that has not received spans recently."""

    workspace_id: UUID
    placeholder: PlaceholderRoot
    first_at: datetime
    ended_at: datetime


def claim_quiet_traces(quiet_for: timedelta) -> list[QuietTrace]:
    """Mark some traces with a placeholder root as closed and return them."""
    statement = """
        UPDATE ingest_otlptrace SET closed_at = clock_timestamp()
        WHERE (workspace_id, trace_id) IN (
            SELECT workspace_id, trace_id FROM ingest_otlptrace
            WHERE placeholder_at IS NOT NULL AND placeholder_project_id IS NOT NULL
              AND updated_at <= clock_timestamp() - %s
              AND (closed_at IS NULL OR closed_at < updated_at)
            LIMIT %s FOR UPDATE SKIP LOCKED)
        RETURNING workspace_id, root_run_id, placeholder_project_id, placeholder_at, first_at,
            coalesce(ended_at, first_at)
    """
    with raw_cursor() as cursor:
        rows = cursor.execute(statement, [quiet_for, _BATCH_SIZE]).fetchall()
    return [QuietTrace(row[0], PlaceholderRoot(*row[1:4]), row[4], row[5]) for row in rows]


def delete_old_state() -> int:
    """Delete the state of traces without a new span for `STATE_RETENTION`; return the rows."""
    with raw_cursor() as cursor:
        cursor.execute(
            "WITH old AS (DELETE FROM ingest_otlptrace WHERE updated_at < now() - %s"
            " RETURNING workspace_id, trace_id)"
            " DELETE FROM ingest_otlpwaitingspan w USING old"
            " WHERE w.workspace_id = old.workspace_id AND w.trace_id = old.trace_id",
            [STATE_RETENTION],
        )
        return cursor.rowcount
