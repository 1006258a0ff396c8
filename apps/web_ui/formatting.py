"""Formatting of numbers, durations and times."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

EMPTY = "\N{EN DASH}"
"""What the functions return for None."""
_DAY = 86_400


def duration(value: timedelta | float | None) -> str:
    """Format a duration; a number is in seconds: `84 ms`, `1.24 s`, `2 min 5 s`, `3 h 12 min`."""
    if value is None:
        return EMPTY
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 0.0005:
        return "0 ms" if seconds <= 0 else "<1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return _two_units(whole // 60, "min", whole % 60, "s")
    if whole < _DAY:
        return _two_units(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two_units(whole // _DAY, "d", whole % _DAY // 3600, "h")


def _two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def ago(timestamp: datetime, now: datetime | None = None) -> str:
    """Format the age: `just now`, `5 min ago`, `3 h ago`, `2 d ago`, after a week the date."""
    now = now or datetime.now(UTC)
    seconds = (now - timestamp).total_seconds()
    if seconds < 0:
        return timestamp.strftime("%-d %b %Y") if seconds < -60 else "just now"
    if seconds < 10:
        return "just now"
    if seconds < 60:
        return f"{seconds:.0f} s ago"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < _DAY:
        return f"{seconds // 3600:.0f} h ago"
    if seconds < 7 * _DAY:
        return f"{seconds // _DAY:.0f} d ago"
    date_format = "%-d %b" if timestamp.year == now.year else "%-d %b %Y"
    return timestamp.strftime(date_format)


def count(value: int | None) -> str:
    """Format with thin spaces between thousands."""
    return EMPTY if value is None else f"{value:,}".replace(",", "\u202f")


def compact(value: int | None) -> str:
    """Format as `812`, `12.4k`, `3.1M`."""
    if value is None:
        return EMPTY
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            text = f"{value / size:.1f}" if value < 100 * size else f"{value / size:.0f}"
            return text.removesuffix(".0") + unit
    return str(value)


def money(value: Decimal | float | str | None) -> str:
    """Format dollars with two significant digits or more: `$12.40`, `$0.042`, `$0.00031`."""
    if value is None:
        return EMPTY
    amount = float(value)
    if amount == 0:
        return "$0"
    if abs(amount) < 0.000001:
        return "<$0.000001"
    if abs(amount) >= 1:
        return f"${amount:,.2f}"
    places = 1 - math.floor(math.log10(abs(amount)))
    return f"${amount:.{max(2, places)}f}"


def percent(value: float | None) -> str:
    """Format a fraction as `0 %`, `3.2 %`, `48 %`."""
    if value is None:
        return EMPTY
    percentage = value * 100
    if percentage >= 10 or percentage == round(percentage):
        return f"{percentage:.0f} %"
    return f"{percentage:.1f} %"


def size(value: int | None) -> str:
    """Format bytes as `512 B`, `18.2 KB`, `3.4 MB`."""
    if value is None:
        return EMPTY
    amount = float(value)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
