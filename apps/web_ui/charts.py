"""Time series in the form that `<time-chart>` and its data table show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.core.json import Fragment, dumps_text
from apps.web_ui import formatting

HUES = ("1", "2", "3", "4", "5", "6")


@dataclass(frozen=True)
class Line:
    name: str
    hue: str
    values: Sequence[float | None]
    href: str = ""


@dataclass(frozen=True)
class Chart:
    """`unit`: count, tokens, s, share, usd or score; `kind`: line, bars or stack."""

    id: str
    title: str
    unit: str
    kind: str
    edges: Sequence[datetime]
    """The start of each bucket and the end of the last one."""
    lines: Sequence[Line] = field(default_factory=list)
    href: str = ""
    """URL that a click on the chart opens; the time range is appended."""
    total: str = ""
    note: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there are no values; for counts and sums, zeros are no values either."""
        empty_values = (None, 0) if self.unit in ("count", "tokens", "usd") else (None,)
        return all(value in empty_values for line in self.lines for value in line.values)

    @property
    def data(self) -> Fragment:
        times = [edge.timestamp() for edge in self.edges[:-1]]
        step = (self.edges[1] - self.edges[0]).total_seconds() if len(self.edges) > 1 else 60
        payload: dict[str, Any] = {
            "step": step,
            "unit": self.unit,
            "kind": self.kind,
            "times": times,
            "open": self.href,
            "series": [
                {"name": line.name, "hue": line.hue, "values": list(line.values), "href": line.href}
                for line in self.lines
            ],
        }
        return Fragment(dumps_text(payload).encode())

    @property
    def rows(self) -> list[tuple[datetime, list[str]]]:
        """Return the rows of the data table: buckets with a value, newest first."""
        rows = []
        for bucket, edge in enumerate(self.edges[:-1]):
            values = [line.values[bucket] for line in self.lines]
            if any(values):
                rows.append((edge, [format_value(value, self.unit) for value in values]))
        return rows[::-1]


def format_value(value: float | None, unit: str) -> str:
    """Format a value with its unit."""
    if value is None:
        return formatting.EMPTY
    match unit:
        case "s":
            return formatting.duration(value)
        case "share":
            return formatting.percent(value)
        case "usd":
            return formatting.money(value)
        case "count" | "tokens":
            whole = float(value).is_integer()
            return formatting.count(round(value)) if whole else f"{value:.2f}"
    return f"{value:.4g}"


def edges(start: datetime, end: datetime, step: timedelta) -> list[datetime]:
    """Return the bounds of buckets at multiples of `step` that cover `start` to `end`."""
    seconds = int(step.total_seconds())
    first = int(start.timestamp()) // seconds * seconds
    last = -(-int(end.timestamp()) // seconds) * seconds
    return [
        datetime.fromtimestamp(timestamp, UTC)
        for timestamp in range(first, max(last, first + seconds) + 1, seconds)
    ]
