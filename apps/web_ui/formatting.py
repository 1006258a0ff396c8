"""Formatting of numbers, durations and times. Times are in the active time zone."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.utils import timezone

EMPTY = "\N{EN DASH}"
"""The text that represents None."""
_DAY = 86_400


def format_duration(value: timedelta | float | None) -> str:
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
    total_seconds = round(seconds)
    if total_seconds < 3600:
        return _two_units(total_seconds // 60, "min", total_seconds % 60, "s")
    if total_seconds < _DAY:
        return _two_units(total_seconds // 3600, "h", total_seconds % 3600 // 60, "min")
    return _two_units(total_seconds // _DAY, "d", total_seconds % _DAY // 3600, "h")


def _two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def format_age(timestamp: datetime, now: datetime | None = None) -> str:
    """Format the age: `just now`, `5 min ago`, `3 h ago`, `2 d ago`, after a week the date."""
    now = now or datetime.now(UTC)
    seconds = (now - timestamp).total_seconds()
    if seconds < 0:
        return format_day(timestamp, now) if seconds < -60 else "just now"
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
    return format_day(timestamp, now)


def format_day(timestamp: datetime, now: datetime | None = None) -> str:
    """Format the date: `3 Feb`, in another year `3 Feb 2025`."""
    local = _to_local(timestamp)
    is_this_year = local.year == _to_local(now or datetime.now(UTC)).year
    return local.strftime("%-d %b" if is_this_year else "%-d %b %Y")


def format_date_time(timestamp: datetime | None) -> str:
    """Format as `3 Feb 2026 14:05`."""
    return EMPTY if timestamp is None else _to_local(timestamp).strftime("%-d %b %Y %H:%M")


def format_exact_time(timestamp: datetime | None) -> str:
    """Format as `3 Feb 2026 14:05:06.007`."""
    if timestamp is None:
        return EMPTY
    local = _to_local(timestamp)
    return f"{local:%-d %b %Y %H:%M:%S}.{local.microsecond // 1000:03d}"


def _to_local(timestamp: datetime) -> datetime:
    """Convert to the active time zone; the first and the last day of all times stay in UTC."""
    try:
        return timezone.localtime(timestamp)
    except OverflowError:
        return timestamp.astimezone(UTC)


def format_count(value: int | None) -> str:
    """Format with thin spaces between thousands."""
    return EMPTY if value is None else f"{value:,}".replace(",", "\u202f")


def format_compact(value: int | None) -> str:
    """Format as `812`, `12.4k`, `3.1M`."""
    if value is None:
        return EMPTY
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            text = f"{value / size:.1f}" if value < 100 * size else f"{value / size:.0f}"
            return text.removesuffix(".0") + unit
    return str(value)


def format_money(value: Decimal | float | str | None) -> str:
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
    decimals = 1 - math.floor(math.log10(abs(amount)))
    return f"${amount:.{max(2, decimals)}f}"


def format_percent(value: float | None) -> str:
    """Format a fraction as `0 %`, `3.2 %`, `48 %`."""
    if value is None:
        return EMPTY
    percentage = value * 100
    if percentage >= 10 or percentage == round(percentage):
        return f"{percentage:.0f} %"
    return f"{percentage:.1f} %"


def format_size(value: int | None) -> str:
    """Format bytes as `512 B`, `18.2 KB`, `3.4 MB`."""
    if value is None:
        return EMPTY
    amount = float(value)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
