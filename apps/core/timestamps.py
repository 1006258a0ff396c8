"""Timestamps as clients write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_SECONDS, _LATEST_SECONDS = 10**8, 10**11
"""March 1973 and November 5138: between them, each number is a time in one unit only."""
_TICKS_PER_SECOND = (1, 10**3, 10**6, 10**9)


def as_utc(timestamp: datetime) -> datetime:
    """Return the timestamp in UTC; a timestamp without a time zone counts as UTC."""
    if timestamp.tzinfo is None:
        return timestamp.replace(tzinfo=UTC)
    return timestamp.astimezone(UTC)


def correct_unit(timestamp: datetime) -> datetime:
    """Return what a time of the first quarter of 1970 means: seconds, read as milliseconds.

    Clients send such texts, too: the public JavaScript client's own tests do in dotted orders.
    """
    if timestamp.year != 1970 or timestamp.month > 3:
        return timestamp
    return _EPOCH + (timestamp - _EPOCH) * 1000


def parse_timestamp(value: str | float, field: str) -> datetime:
    """Parse ISO 8601 or a number since 1970; `ValueError` names the field.

    Numbers are seconds, milliseconds, microseconds or nanoseconds: the clients' languages differ,
    and the magnitude tells them apart. A number that is no such time after 1973 is invalid.
    """
    try:
        if isinstance(value, str):
            return as_utc(datetime.fromisoformat(value))
        return _parse_number(value)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"`{field}` is not a valid timestamp: {value!r:.60}") from None


def _parse_number(value: float) -> datetime:
    for ticks in _TICKS_PER_SECOND:
        if _EARLIEST_SECONDS * ticks <= value < _LATEST_SECONDS * ticks:
            seconds, rest = divmod(value, ticks)
            return _EPOCH + timedelta(seconds=seconds, microseconds=rest * 10**6 / ticks)
    raise ValueError(value)
