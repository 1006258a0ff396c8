"""Timestamps as clients write them."""

from __future__ import annotations

from datetime import UTC, datetime


def as_utc(timestamp: datetime) -> datetime:
    """Return the timestamp in UTC; a timestamp without a time zone counts as UTC."""
    if timestamp.tzinfo is None:
        return timestamp.replace(tzinfo=UTC)
    return timestamp.astimezone(UTC)


def parse_timestamp(value: str | float, field: str) -> datetime:
    """Parse ISO 8601 or milliseconds since 1970; `ValueError` names the field."""
    try:
        if isinstance(value, str):
            return as_utc(datetime.fromisoformat(value))
        return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"`{field}` is not a valid timestamp: {value!r:.60}") from None
