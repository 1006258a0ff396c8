"""Intervals of rollups (quarter hours, hours and days in UTC) and the runs outside of them.

Quarter hours are the finest, because in every time zone the day begins with a quarter hour.
"""

# ruff: noqa: S608  (statements consist of own names; values are parameters)

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from uuid import UUID

from apps.core.connections import raw_cursor, sql

_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
EARLIEST_TIME = datetime(1, 1, 5, tzinfo=UTC)
LATEST_TIME = datetime(9999, 12, 29, tzinfo=UTC)
"""Bounds that leave room for arithmetic."""


class Resolution(IntEnum):
    QUARTER = 0
    HOUR = 1
    DAY = 2

    @property
    def width(self) -> timedelta:
        return _WIDTHS[self]

    def floor(self, timestamp: datetime) -> datetime:
        """The start of the interval that contains the time."""
        return timestamp - (timestamp - _ORIGIN) % self.width


_WIDTHS = {
    Resolution.QUARTER: timedelta(minutes=15),
    Resolution.HOUR: timedelta(hours=1),
    Resolution.DAY: timedelta(days=1),
}


def _quarter_sql(column: str) -> str:
    return f"date_bin('15 minutes', {column}, '2000-01-01 00:00:00+00')"


# A run belongs to the quarter hour of its partition time. A run that claims another start is
# misplaced: it is in no rollup and has a separate index.
IS_MISPLACED_SQL = f"{_quarter_sql('r.start_time')} <> {_quarter_sql('r.partition_time')}"
# CASE avoids an estimate of nearly no rows, which the planner makes for equal expressions.
IS_IN_PLACE_SQL = f"CASE WHEN {IS_MISPLACED_SQL} THEN false ELSE true END"


MAX_MISPLACED_RUNS = 2_000

TimeRange = tuple[datetime | None, datetime | None]
"""A half-open range; either end may be open."""


def find_misplaced_runs(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    *,
    partition_range: TimeRange = (None, None),
    start_range: TimeRange = (None, None),
) -> list[tuple[datetime, UUID]] | None:
    """Return partition time and project of each misplaced run; None if there are too many."""
    conditions, values = [], []
    for column, between in (("partition_time", partition_range), ("start_time", start_range)):
        for sign, timestamp in zip((">=", "<"), between, strict=True):
            if timestamp is not None:
                conditions.append(f" AND r.{column} {sign} %s")
                values.append(timestamp)
    # Ordered by the key of the partial index, so that the planner uses it.
    statement = (
        "SELECT a.partition_time, a.project_id FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL"
        " (SELECT r.partition_time, r.project_id FROM trace_store_run r WHERE r.workspace_id = %s"
        f" AND r.project_id = p.id AND {IS_MISPLACED_SQL}{''.join(conditions)}"
        f" ORDER BY r.start_time LIMIT {MAX_MISPLACED_RUNS + 1}) a"
    )
    with raw_cursor() as cursor:
        cursor.execute(sql(statement), [list(project_ids), workspace_id, *values], binary=True)
        rows = cursor.fetchall()
    return None if len(rows) > MAX_MISPLACED_RUNS else rows
