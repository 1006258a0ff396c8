"""Numbers as people read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

NOTHING = "\N{EN DASH}"
_DAY = 86_400


def duration(value: timedelta | float | None) -> str:
    """Three figures and a unit: `84 ms`, `1.24 s`, `2 min 5 s`, `3 h 12 min`."""
    if value is None:
        return NOTHING
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
        return _two(whole // 60, "min", whole % 60, "s")
    if whole < _DAY:
        return _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two(whole // _DAY, "d", whole % _DAY // 3600, "h")


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago: `just now`, `5 min ago`, `3 h ago`, `2 d ago`, then the date."""
    now = now or datetime.now(UTC)
    seconds = (now - moment).total_seconds()
    if seconds < 0:
        return moment.strftime("%-d %b %Y") if seconds < -60 else "just now"
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
    form = "%-d %b" if moment.year == now.year else "%-d %b %Y"
    return moment.strftime(form)


def count(value: int | None) -> str:
    """With thin spaces between thousands; a dash for nothing known."""
    return NOTHING if value is None else f"{value:,}".replace(",", "\u202f")


def compact(value: int | None) -> str:
    """`812`, `12.4k`, `3.1M`."""
    if value is None:
        return NOTHING
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            text = f"{value / size:.1f}" if value < 100 * size else f"{value / size:.0f}"
            return text.removesuffix(".0") + unit
    return str(value)


def money(value: Decimal | float | str | None) -> str:
    """Dollars with as many places as the amount needs: `$12.40`, `$0.042`, `$0.00031`."""
    if value is None:
        return NOTHING
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
    """A share: `0 %`, `3.2 %`, `48 %`."""
    if value is None:
        return NOTHING
    share = value * 100
    return f"{share:.0f} %" if share >= 10 or share == round(share) else f"{share:.1f} %"


def size(value: int | None) -> str:
    """Bytes as `512 B`, `18.2 KB`, `3.4 MB`."""
    if value is None:
        return NOTHING
    amount = float(value)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
