"""From when to when traces went."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from apps.tracing.store.raw import raw_cursor


@dataclass(frozen=True, slots=True)
class Span:
    first_start_time: datetime
    last_start_time: datetime
    first_received_at: datetime


def of_traces(workspace_id: UUID, trace_ids: Collection[UUID]) -> dict[UUID, Span]:
    """Of each trace when its first and last run started, and when the first one was received."""
    if not trace_ids:
        return {}
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT trace_id, min(coalesce(start_time, placed_at)),"
            " max(coalesce(start_time, placed_at)), min(received_at)"
            " FROM tracing_run WHERE workspace_id = %s AND trace_id = ANY(%s) GROUP BY trace_id",
            [workspace_id, list(set(trace_ids))],
        )
        return {row[0]: Span(*row[1:]) for row in cursor}
