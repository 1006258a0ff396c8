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
    """The length of a bucket: calendar days or, if `days` is 0, a fixed duration."""

    days: int = 0
    duration: timedelta = timedelta(0)

    @property
    def approximate_length(self) -> timedelta:
        return timedelta(days=self.days) + self.duration


def choose_stride(length: timedelta) -> Stride:
    """Choose a round stride that gives a readable number of buckets."""
    for max_length, duration in (
        (timedelta(hours=1), timedelta(minutes=1)),
        (timedelta(hours=6), timedelta(minutes=5)),
        (timedelta(days=1), timedelta(minutes=15)),
        (timedelta(days=7), timedelta(hours=1)),
    ):
        if length <= max_length:
            return Stride(duration=duration)
    return Stride(days=1 if length <= timedelta(days=120) else 7)


def bucket_edges(start: datetime, end: datetime, stride: Stride, zone: ZoneInfo) -> list[datetime]:
    """Return the bucket edges in UTC. The first bucket contains `start`, the last one `end`.

    Buckets of days begin at midnight in the zone; shorter buckets restart at each midnight.
    """
    if end <= start:
        raise errors.Invalid("end_time: must be later than start_time.")
    if stride.approximate_length < timedelta(minutes=1):
        raise errors.Invalid("stride: must be at least a minute.")
    if (end - start) / stride.approximate_length > MAX_BUCKETS:
        raise errors.Invalid(
            f"stride: too short; it gives more than {MAX_BUCKETS} points per series."
        )
    edges: list[datetime] = []
    for edge in _iterate_edges(start.astimezone(zone).date(), stride, zone):
        if edge <= start:
            edges = [edge]
        else:
            edges.append(edge)
        if edge >= end:
            break
    return edges


def _iterate_edges(day: date, stride: Stride, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield edges in UTC, starting at midnight of the day, without end."""
    while True:
        next_day = day + timedelta(days=stride.days or 1)
        current, until = _midnight(day, zone), _midnight(next_day, zone)
        if stride.days:
            yield current
        else:
            while current < until:
                yield current
                current += stride.duration
        day = next_day


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
