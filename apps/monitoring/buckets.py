"""Time buckets in a time zone. A day has 23 or 25 hours when the clocks change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from apps.core import errors

MAX_BUCKETS = 2000


@dataclass(frozen=True, slots=True)
class Stride:
    """A number of calendar days, or, if `days` is 0, a length of time."""

    days: int = 0
    rest: timedelta = timedelta(0)

    @property
    def approximate_length(self) -> timedelta:
        return timedelta(days=self.days) + self.rest


def choose_stride(length: timedelta) -> Stride:
    """Choose a round stride that gives a readable number of buckets."""
    for max_length, rest in (
        (timedelta(hours=1), timedelta(minutes=1)),
        (timedelta(hours=6), timedelta(minutes=5)),
        (timedelta(days=1), timedelta(minutes=15)),
        (timedelta(days=7), timedelta(hours=1)),
    ):
        if length <= max_length:
            return Stride(rest=rest)
    return Stride(days=1 if length <= timedelta(days=120) else 7)


def edges(start: datetime, end: datetime, stride: Stride, zone: ZoneInfo) -> list[datetime]:
    """Return the bounds in UTC. The first bucket contains `start`, the last one `end`.

    Buckets of days begin at midnight in the zone; shorter buckets restart at each midnight.
    """
    if end <= start:
        raise errors.Invalid("end_time: must be later than start_time.")
    if stride.approximate_length < timedelta(minutes=1):
        raise errors.Invalid("stride: must be at least a minute.")
    if (end - start) / stride.approximate_length > MAX_BUCKETS:
        raise errors.Invalid(f"stride: results in more than {MAX_BUCKETS} points per series.")
    bounds: list[datetime] = []
    for bound in _bounds(start.astimezone(zone).date(), stride, zone):
        if bound <= start:
            bounds = [bound]
        else:
            bounds.append(bound)
        if bound >= end:
            break
    return bounds


def _bounds(day: date, stride: Stride, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield bounds in UTC from midnight of the day on, without end."""
    while True:
        next_day = day + timedelta(days=stride.days or 1)
        current, until = _midnight(day, zone), _midnight(next_day, zone)
        if stride.days:
            yield current
        else:
            while current < until:
                yield current
                current += stride.rest
        day = next_day


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
