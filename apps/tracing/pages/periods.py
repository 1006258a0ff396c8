"""The stretch of time that a page looks at: a preset, or two moments, from the address."""

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
USUAL = "7d"
_STEPS = (1, 5, 15, 30, 60, 180, 360, 720, 1440, 10_080)
_MOST_STEPS = 90


@dataclass(frozen=True)
class Period:
    """From `start` to `end`; an absent one does not limit."""

    key: str
    """A preset's, or `""` for two moments."""
    start: datetime | None
    end: datetime | None
    now: datetime

    @property
    def label(self) -> str:
        if self.key:
            return PRESETS[self.key][0]
        words = [_words(moment) if moment else "…" for moment in (self.start, self.end)]
        return f"{words[0]} to {words[1] if self.end else 'now'}"

    @property
    def parameters(self) -> dict[str, str]:
        """How an address says it; the usual one is not said."""
        if self.key:
            return {} if self.key == USUAL else {"range": self.key}
        found = {"from": self.start, "to": self.end}
        return {name: stamp(moment) for name, moment in found.items() if moment}

    @property
    def limits(self) -> tuple[datetime, datetime]:
        """A beginning and an end for sums and charts, which need both."""
        end = self.end or self.now
        return self.start or end - timedelta(days=30), end

    @property
    def step(self) -> timedelta:
        """A round stretch that cuts the period into at most ninety."""
        start, end = self.limits
        minutes = (end - start) / timedelta(minutes=1)
        fit = next((step for step in _STEPS if minutes / step <= _MOST_STEPS), _STEPS[-1])
        return timedelta(minutes=fit)

    @property
    def before(self) -> Period:
        """The period of the same length before this one."""
        start, end = self.limits
        return Period("", start - (end - start), start, self.now)


def read(given: Mapping[str, str], *, now: datetime | None = None, usual: str = USUAL) -> Period:
    """What the parameters `range`, `from` and `to` say; nonsense counts as nothing said."""
    now = now or datetime.now(UTC)
    start, end = moment(given.get("from", "")), moment(given.get("to", ""))
    if start or end:
        if start and end and start > end:
            start, end = end, start
        return Period("", start, end, now)
    key = given.get("range", "")
    key = key if key in PRESETS else usual
    length = PRESETS[key][1]
    return Period(key, now - length if length else None, None, now)


def moment(text: str) -> datetime | None:
    """ISO 8601; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text.strip()) if text else None
    except ValueError:
        return None
    if found is None:
        return None
    try:
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except OverflowError:
        return None


def stamp(value: datetime) -> str:
    """Short and exact, for an address."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text.removesuffix(".000") + "Z"


def _words(value: datetime) -> str:
    return value.strftime("%-d %b %H:%M")
