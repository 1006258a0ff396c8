"""Time series in the form that `<time-chart>` and its data table show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.core.json import Fragment, dumps_text
from apps.web_ui import formatting

HUES = ("1", "2", "3", "4", "5", "6")
STATUS_HUES = {
    "success": "1",
    "error": "error",
    "interrupted": "waiting",
    "cancelled": "warning",
    "pending": "running",
    "running": "running",
}
"""The hue of a run status, by its value and by its label in lower case: the same in all charts."""
UNIT_LABELS = {
    "count": "count",
    "tokens": "tokens",
    "s": "duration",
    "share": "share",
    "usd": "cost",
    "score": "score",
}


@dataclass(frozen=True)
class Line:
    name: str
    hue: str
    values: Sequence[float | None]
    href: str = ""
    before: Sequence[float | None] | None = None
    """The values of the previous period, if it is compared."""
    dash: int = 0
    """The pattern of the line: 0 is solid, others tell lines of one hue apart."""


def line_style(index: int) -> tuple[str, int]:
    """Return hue and dash of a chart's line. Lines beyond the hues repeat them with a pattern."""
    return HUES[index % len(HUES)], index // len(HUES)


@dataclass(frozen=True)
class LineChart:
    """Lines of one unit over time.

    `unit`: a key of `UNIT_LABELS`, or two joined by "/"; `kind`: line, bars or stack.
    """

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
    """Since when runs are counted, if it is not the whole time range."""
    groups_note: str = ""
    """Which groups the lines show, if it is not all of them."""
    zone: str = ""
    """The time zone of buckets that are days of that zone; else the page's."""
    labels: Sequence[str] = ()
    """The names of the points of a chart without time, such as one of experiments: "#3 name"."""
    links: Sequence[str] = ()
    """The address that a click on each named point opens."""

    @property
    def columns(self) -> list[str]:
        """Return the columns of the data table: the lines, then those of the previous period."""
        names = [line.name for line in self.lines]
        return names + [
            f"{line.name}, previous period" for line in self.lines if line.before is not None
        ]

    @property
    def is_empty(self) -> bool:
        """Whether there are no values. Zeros of counts and sums do not count as values."""
        empty_values = (None, 0) if self.unit in ("count", "tokens", "usd") else (None,)
        return all(
            value in empty_values
            for line in self.lines
            for value in (*line.values, *(line.before or ()))
        )

    @property
    def data(self) -> Fragment:
        times: list[float] = [edge.timestamp() for edge in self.edges[:-1]]
        if self.labels:
            times = [float(index) for index in range(len(self.labels))]
        step = (self.edges[1] - self.edges[0]).total_seconds() if len(self.edges) > 1 else 60
        payload: dict[str, Any] = {
            "step": step,
            "unit": self.unit,
            "kind": self.kind,
            "zone": self.zone,
            "times": times,
            "open": self.href,
            "labels": list(self.labels),
            "links": list(self.links),
            "series": [
                {
                    "name": line.name,
                    "hue": line.hue,
                    "dash": line.dash,
                    "values": list(line.values),
                    "before": None if line.before is None else list(line.before),
                    "href": line.href,
                }
                for line in self.lines
            ],
        }
        return Fragment(dumps_text(payload).encode())

    @property
    def rows(self) -> list[tuple[datetime | str, list[str]]]:
        """Return the rows of the data table: buckets or points with a value, newest first."""
        rows: list[tuple[datetime | str, list[str]]] = []
        columns = [line.values for line in self.lines]
        columns += [line.before for line in self.lines if line.before is not None]
        names: Sequence[datetime | str] = self.labels or self.edges[:-1]
        for index, name in enumerate(names):
            values = [column[index] for column in columns]
            if any(values) or (self.labels and any(value is not None for value in values)):
                rows.append((name, [format_value(value, self.unit) for value in values]))
        return rows[::-1]


def format_value(value: float | None, unit: str) -> str:
    """Format a value with its unit."""
    if value is None:
        return formatting.EMPTY
    match unit:
        case "s":
            return formatting.format_duration(value)
        case "share":
            return formatting.format_percent(value)
        case "usd":
            return formatting.format_money(value)
        case "count" | "tokens":
            is_whole = float(value).is_integer()
            return formatting.format_count(round(value)) if is_whole else f"{value:.2f}"
    return f"{value:.4g}"


def bucket_edges(start: datetime, end: datetime, step: timedelta) -> list[datetime]:
    """Return the edges of buckets at multiples of `step` that cover `start` to `end`.

    The last edge is after `end`, because a bucket excludes its upper edge.
    """
    seconds = int(step.total_seconds())
    first = int(start.timestamp()) // seconds * seconds
    last = -(-math.ceil(end.timestamp()) // seconds) * seconds
    edges = [
        datetime.fromtimestamp(timestamp, UTC)
        for timestamp in range(first, max(last, first + seconds) + 1, seconds)
    ]
    return [*edges[:-1], max(edges[-1], end.astimezone(UTC) + timedelta(microseconds=1))]
