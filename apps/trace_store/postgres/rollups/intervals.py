"""Stretches of time that rollups are kept for: quarters of an hour, hours, days of UTC.

A quarter is the finest, because every time zone's days begin with one.
"""

# ruff: noqa: S608  (statements are made of this module's own names; values go beside them)

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from uuid import UUID

from apps.core.raw_sql import raw_cursor, sql

_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
EARLIEST_TIME = datetime(1, 1, 5, tzinfo=UTC)
LATEST_TIME = datetime(9999, 12, 29, tzinfo=UTC)
"""Bounds that leave room to reckon around them."""


class Resolution(IntEnum):
    QUARTER = 0
    HOUR = 1
    DAY = 2

    @property
    def width(self) -> timedelta:
        return _WIDTHS[self]

    def floor(self, moment: datetime) -> datetime:
        """When the resolution that the moment lies in begins."""
        return moment - (moment - _ORIGIN) % self.width


_WIDTHS = {
    Resolution.QUARTER: timedelta(minutes=15),
    Resolution.HOUR: timedelta(hours=1),
    Resolution.DAY: timedelta(days=1),
}


def _quarter_sql(column: str) -> str:
    return f"date_bin('15 minutes', {column}, '2000-01-01 00:00:00+00')"


# A run belongs to the quarter of its place; one that says it started in another is misplaced, is in
# no rollup, and is looked up by an index of its own.
IS_MISPLACED_SQL = f"{_quarter_sql('r.start_time')} <> {_quarter_sql('r.partition_time')}"
# A CASE, because the planner takes an equation of expressions for true of hardly any row.
IS_IN_PLACE_SQL = f"CASE WHEN {IS_MISPLACED_SQL} THEN false ELSE true END"


MAX_MISPLACED_RUNS = 2_000

TimeRange = tuple[datetime | None, datetime | None]
"""From, and up to but without; either may be open."""


def find_misplaced_runs(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    *,
    placed: TimeRange = (None, None),
    started: TimeRange = (None, None),
) -> list[tuple[datetime, UUID]] | None:
    """Their places and projects; None when there are more than `MOST` in a project."""
    conditions, values = [], []
    for column, between in (("partition_time", placed), ("start_time", started)):
        for sign, moment in zip((">=", "<"), between, strict=True):
            if moment is not None:
                conditions.append(f" AND r.{column} {sign} %s")
                values.append(moment)
    # In the order of their own index, so that no other is taken for it.
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
