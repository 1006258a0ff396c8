"""Buckets of time as a time zone's clock has them: days are as long as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from apps.core import errors

MOST = 2000


@dataclass(frozen=True, slots=True)
class Stride:
    """Whole days of the calendar, or, without any, a length of time."""

    days: int = 0
    rest: timedelta = timedelta(0)

    @property
    def about(self) -> timedelta:
        return timedelta(days=self.days) + self.rest


def fitting(length: timedelta) -> Stride:
    """A stride that cuts the time into some dozens of buckets."""
    for longest, rest in (
        (timedelta(hours=1), timedelta(minutes=1)),
        (timedelta(hours=6), timedelta(minutes=5)),
        (timedelta(days=1), timedelta(minutes=15)),
        (timedelta(days=7), timedelta(hours=1)),
    ):
        if length <= longest:
            return Stride(rest=rest)
    return Stride(days=1 if length <= timedelta(days=120) else 7)


def edges(start: datetime, end: datetime, stride: Stride, zone: ZoneInfo) -> list[datetime]:
    """The bounds in UTC; the first bucket holds the start, and the last one the end.

    Buckets of days begin at midnight there; shorter ones count from each midnight anew.
    """
    if end <= start:
        raise errors.Invalid("end_time: must be later than start_time.")
    if stride.about < timedelta(minutes=1):
        raise errors.Invalid("stride: must be at least a minute.")
    if (end - start) / stride.about > MOST:
        raise errors.Invalid(f"stride: this makes more than {MOST} points a series.")
    found: list[datetime] = []
    for bound in _bounds(start.astimezone(zone).date(), stride, zone):
        if bound <= start:
            found = [bound]
        else:
            found.append(bound)
        if bound >= end:
            break
    return found


def _bounds(day: date, stride: Stride, zone: ZoneInfo) -> Iterator[datetime]:
    """In UTC, from the day's midnight on, without an end."""
    while True:
        following = day + timedelta(days=stride.days or 1)
        current, until = _midnight(day, zone), _midnight(following, zone)
        if stride.days:
            yield current
        else:
            while current < until:
                yield current
                current += stride.rest
        day = following


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
