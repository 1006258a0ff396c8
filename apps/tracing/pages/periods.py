"""The time range of a page, from query parameters: a preset, or a start and an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from urllib.parse import urlencode

from django.utils import timezone

from apps.web_ui.formatting import format_date_time

PRESETS: dict[str, tuple[str, timedelta | None]] = {
    "15m": ("Last 15 minutes", timedelta(minutes=15)),
    "1h": ("Last hour", timedelta(hours=1)),
    "6h": ("Last 6 hours", timedelta(hours=6)),
    "1d": ("Last 24 hours", timedelta(days=1)),
    "7d": ("Last 7 days", timedelta(days=7)),
    "30d": ("Last 30 days", timedelta(days=30)),
    "all": ("All time", None),
}
DEFAULT_PRESET = "7d"
_STEP_MINUTES = (1, 5, 15, 30, 60, 180, 360, 720, 1440, 10_080)
_MAX_STEPS = 90


@dataclass(frozen=True)
class Period:
    """A time range from `start` to `end`; None means unlimited."""

    key: str
    """The preset's key, or `""` for a custom range."""
    start: datetime | None
    end: datetime | None
    now: datetime

    @property
    def label(self) -> str:
        if self.key:
            return PRESETS[self.key][0]
        start = format_date_time(self.start) if self.start else "…"
        return f"{start} to {format_date_time(self.end) if self.end else 'now'}"

    @property
    def parameters(self) -> dict[str, str]:
        """Return the query parameters; the default preset has none."""
        if self.key:
            return {} if self.key == DEFAULT_PRESET else {"range": self.key}
        bounds = {"from": self.start, "to": self.end}
        return {name: format_time(time) for name, time in bounds.items() if time}

    @property
    def query_string(self) -> str:
        """Return the parameters for an address: empty, or with a question mark."""
        return f"?{urlencode(self.parameters)}" if self.parameters else ""

    @property
    def limits(self) -> tuple[datetime, datetime]:
        """Return a start and an end, both set."""
        end = self.end or self.now
        return self.start or end - timedelta(days=30), end

    @property
    def step(self) -> timedelta:
        """Return a round step that divides the period into at most `_MAX_STEPS`."""
        start, end = self.limits
        minutes = (end - start) / timedelta(minutes=1)
        step_minutes = next(
            (step for step in _STEP_MINUTES if minutes / step <= _MAX_STEPS), _STEP_MINUTES[-1]
        )
        return timedelta(minutes=step_minutes)


def read_period(params: Mapping[str, str]) -> Period:
    """Parse the parameters `range`, `from` and `to`; invalid values are ignored."""
    now = datetime.now(UTC)
    start, end = parse_time(params.get("from", "")), parse_time(params.get("to", ""))
    if start or end:
        if start and end and start > end:
            start, end = end, start
        return Period("", start, end, now)
    key = params.get("range", "")
    key = key if key in PRESETS else DEFAULT_PRESET
    length = PRESETS[key][1]
    return Period(key, now - length if length else None, None, now)


def parse_time(text: str) -> datetime | None:
    """Parse ISO 8601; naive times are in the active time zone. Returns None if invalid.

    The first and the last year are invalid: a period could not begin before or end after them.
    """
    try:
        result = datetime.fromisoformat(text.strip()) if text else None
    except ValueError:
        return None
    if result is None or not MINYEAR < result.year < MAXYEAR:
        return None
    try:
        return (result if result.tzinfo else timezone.make_aware(result)).astimezone(UTC)
    except OverflowError:
        return None


def format_time(value: datetime) -> str:
    """Format a time for a query parameter, in milliseconds."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text.removesuffix(".000") + "Z"
