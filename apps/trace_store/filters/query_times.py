"""Times of the query bar's language: dates, times, days by name, and durations ago."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

_AGO = re.compile(r"(?P<count>\d{1,5})\s*(?P<unit>s|m|min|h|d|w)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MONTH = re.compile(r"(?P<year>\d{4})-(?P<month>\d{2})", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MINUTE = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The time from `begin` until before `end`, in UTC; an instant has the same for both."""

    begin: datetime
    end: datetime
    is_ago: bool = False
    """Whether it was written as a duration before now."""


def parse_time_span(text: str, now: datetime) -> TimeSpan | None:
    """Parse a time; dates are days in the zone of `now`. Returns None if it is none."""
    text = text.strip().lower().removesuffix(" ago")
    try:
        return _parse(text, now)
    except (ValueError, OverflowError):
        return None


def _parse(text: str, now: datetime) -> TimeSpan | None:
    zone = now.tzinfo or UTC
    if match := _AGO.fullmatch(text):
        seconds = int(match["count"]) * _SECONDS[match["unit"]]
        # In UTC, so that a change of the clocks does not count.
        begin = now.astimezone(UTC) - timedelta(seconds=seconds)
        return TimeSpan(begin, begin, is_ago=True)
    if text == "now":
        return TimeSpan(now.astimezone(UTC), now.astimezone(UTC))
    if text in {"today", "yesterday"}:
        day = now.date() - timedelta(days=text == "yesterday")
        return _local_span(datetime(day.year, day.month, day.day), timedelta(days=1), zone)  # noqa: DTZ001
    if match := _MONTH.fullmatch(text):
        year, month = int(match["year"]), int(match["month"])
        begin = datetime(year, month, 1, tzinfo=zone)
        end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
        return TimeSpan(begin.astimezone(UTC), end.astimezone(UTC))
    value = datetime.fromisoformat(text.upper() if "t" in text or "z" in text else text)
    if _DATE.fullmatch(text):
        return _local_span(value, timedelta(days=1), zone)
    if value.tzinfo is not None:
        instant = value.astimezone(UTC)
        return TimeSpan(instant, instant)
    length = timedelta(minutes=1) if _MINUTE.fullmatch(text.replace("t", " ")) else timedelta(0)
    return _local_span(value, length, zone)


def _local_span(value: datetime, length: timedelta, zone: tzinfo) -> TimeSpan:
    """The span from a time without a zone; a day has the length that it has in the zone."""
    begin, end = value.replace(tzinfo=zone), (value + length).replace(tzinfo=zone)
    return TimeSpan(begin.astimezone(UTC), end.astimezone(UTC))
