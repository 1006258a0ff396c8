"""What each request brought, appended in its own transaction: the ledger and what is unsettled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from apps.trace_store.store.raw import raw_cursor

_APPEND = """
WITH counted AS (
    INSERT INTO tracing_runcount
        (created_at, workspace_id, hour, project_id, runs, traces, merged, last_start_time)
    SELECT %b, %b, date_trunc('hour', %b::timestamptz, 'UTC'), said.*
    FROM unnest(%b::uuid[], %b::int8[], %b::int8[], %b::int8[], %b::timestamptz[]) AS said
)
INSERT INTO tracing_unsettled (workspace_id, run_ids, project_ids, trace_ids, placed_at)
VALUES (%b, %b::uuid[], %b::uuid[], %b::uuid[], %b::timestamptz[])
RETURNING EXISTS (
    SELECT FROM ingest_deferredoperation h
    WHERE h.workspace_id = tracing_unsettled.workspace_id
      AND h.awaited_run_id = ANY(tracing_unsettled.run_ids)
)
"""


class Touched(NamedTuple):
    """A run that the request wrote: what the settler is told."""

    run_id: UUID
    project_id: UUID
    trace_id: UUID
    placed_at: datetime


@dataclass(slots=True)
class Count:
    last_start_time: datetime
    runs: int = 0
    traces: int = 0
    merged: int = 0

    def add(self, placed_at: datetime, *, is_fresh: bool, is_root: bool) -> None:
        self.last_start_time = max(self.last_start_time, placed_at)
        if is_fresh:
            self.runs += 1
            self.traces += is_root
        else:
            self.merged += 1


def append(
    workspace_id: UUID, now: datetime, counts: Mapping[UUID, Count], touched: Sequence[Touched]
) -> bool:
    """Append a row for each project and one for the settler: no request waits for another's.

    Returns whether an operation waits for one of the runs, which costs no statement of its own.
    """
    said = list(counts.values())
    values = [
        list(counts),
        [count.runs for count in said],
        [count.traces for count in said],
        [count.merged for count in said],
        [count.last_start_time for count in said],
    ]
    columns = [list(column) for column in zip(*touched, strict=True)]
    with raw_cursor() as cursor:
        given = [now, workspace_id, now, *values, workspace_id, *columns]
        cursor.execute(_APPEND, given, prepare=True)
        (is_awaited,) = cursor.fetchone() or (False,)
    return bool(is_awaited)
