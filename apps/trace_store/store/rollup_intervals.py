"""Stretches of time that rollups are kept for: quarters of an hour, hours, days of UTC.

A quarter is the finest, because every time zone's days begin with one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import IntEnum

_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
EARLIEST = datetime(1, 1, 5, tzinfo=UTC)
LATEST = datetime(9999, 12, 29, tzinfo=UTC)
"""Bounds that leave room to reckon around them."""


class Span(IntEnum):
    QUARTER = 0
    HOUR = 1
    DAY = 2

    @property
    def width(self) -> timedelta:
        return _WIDTHS[self]

    def begin(self, moment: datetime) -> datetime:
        """When the span that the moment lies in begins."""
        return moment - (moment - _ORIGIN) % self.width


_WIDTHS = {
    Span.QUARTER: timedelta(minutes=15),
    Span.HOUR: timedelta(hours=1),
    Span.DAY: timedelta(days=1),
}


def _quarter(column: str) -> str:
    return f"date_bin('15 minutes', {column}, '2000-01-01 00:00:00+00')"


# A run belongs to the quarter of its place; one that says it started in another is astray, is in
# no rollup, and is looked up by an index of its own.
ASTRAY = f"{_quarter('r.start_time')} <> {_quarter('r.placed_at')}"
# A CASE, because the planner takes an equation of expressions for true of hardly any row.
IN_PLACE = f"CASE WHEN {ASTRAY} THEN false ELSE true END"
