"""The time range of a page, from query parameters: a preset, or a start and an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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
    """A range from `start` to `end`; None is unlimited."""

    key: str
    """The preset's key, or `""` for a custom range."""
    start: datetime | None
    end: datetime | None
    now: datetime

    @property
    def label(self) -> str:
        if self.key:
            return PRESETS[self.key][0]
        words = [
            _time_label(parse_time) if parse_time else "…" for parse_time in (self.start, self.end)
        ]
        return f"{words[0]} to {words[1] if self.end else 'now'}"

    @property
    def parameters(self) -> dict[str, str]:
        """Return the query parameters; the default preset has none."""
        if self.key:
            return {} if self.key == DEFAULT_PRESET else {"range": self.key}
        result = {"from": self.start, "to": self.end}
        return {name: format_time(parse_time) for name, parse_time in result.items() if parse_time}

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
        fit = next(
            (step for step in _STEP_MINUTES if minutes / step <= _MAX_STEPS), _STEP_MINUTES[-1]
        )
        return timedelta(minutes=fit)

    @property
    def before(self) -> Period:
        """Return the preceding period of the same length."""
        start, end = self.limits
        return Period("", start - (end - start), start, self.now)


def read_period(
    params: Mapping[str, str], *, now: datetime | None = None, usual: str = DEFAULT_PRESET
) -> Period:
    """Parse the parameters `range`, `from` and `to`; invalid values are ignored."""
    now = now or datetime.now(UTC)
    start, end = parse_time(params.get("from", "")), parse_time(params.get("to", ""))
    if start or end:
        if start and end and start > end:
            start, end = end, start
        return Period("", start, end, now)
    key = params.get("range", "")
    key = key if key in PRESETS else usual
    length = PRESETS[key][1]
    return Period(key, now - length if length else None, None, now)


def parse_time(text: str) -> datetime | None:
    """Parse ISO 8601; naive times are UTC. Returns None if invalid."""
    try:
        result = datetime.fromisoformat(text.strip()) if text else None
    except ValueError:
        return None
    if result is None:
        return None
    try:
        return result.astimezone(UTC) if result.tzinfo else result.replace(tzinfo=UTC)
    except OverflowError:
        return None


def format_time(value: datetime) -> str:
    """Format for a query parameter, without loss."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text.removesuffix(".000") + "Z"


def _time_label(value: datetime) -> str:
    return value.strftime("%-d %b %H:%M")
