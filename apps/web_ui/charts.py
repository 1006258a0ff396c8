"""Figures over time as the element `<time-chart>` and the table beside it want them."""

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
    """Where buckets begin, and where the last one ends."""
    lines: Sequence[Line] = field(default_factory=list)
    href: str = ""
    """Where a moment of it leads; the times are added."""
    total: str = ""
    note: str = ""

    @property
    def is_empty(self) -> bool:
        """Nothing was told; of counts and sums, a row of zeros is nothing either."""
        nothing = (None, 0) if self.unit in ("count", "tokens", "usd") else (None,)
        return all(value in nothing for line in self.lines for value in line.values)

    @property
    def data(self) -> Fragment:
        times = [edge.timestamp() for edge in self.edges[:-1]]
        step = (self.edges[1] - self.edges[0]).total_seconds() if len(self.edges) > 1 else 60
        said: dict[str, Any] = {
            "step": step,
            "unit": self.unit,
            "kind": self.kind,
            "times": times,
            "open": self.href,
            "series": [
                {"name": one.name, "hue": one.hue, "values": list(one.values), "href": one.href}
                for one in self.lines
            ],
        }
        return Fragment(dumps_text(said).encode())

    @property
    def rows(self) -> list[tuple[datetime, list[str]]]:
        """For the table: only times at which there is something, the newest first."""
        found = []
        for at, edge in enumerate(self.edges[:-1]):
            values = [line.values[at] for line in self.lines]
            if any(value for value in values):
                found.append((edge, [said(value, self.unit) for value in values]))
        return found[::-1]


def said(value: float | None, unit: str) -> str:
    """A value in its unit, as text."""
    if value is None:
        return formatting.NOTHING
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
    """Bounds of buckets on round times, from the one with `start` to the one with `end`."""
    seconds = int(step.total_seconds())
    first = int(start.timestamp()) // seconds * seconds
    last = -(-int(end.timestamp()) // seconds) * seconds
    return [
        datetime.fromtimestamp(at, UTC)
        for at in range(first, max(last, first + seconds) + 1, seconds)
    ]
