"""Firing times of cron schedules: five fields, or six with seconds, in a time zone.

When clocks go forward, times in the gap fire right after it. When they go back, a fixed time fires
once and a wildcard continues with real hours (Debian's rules, as implemented by cronsim).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from apps.core.errors import Invalid

_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MAX_LENGTH = 255


class InvalidSchedule(Invalid):
    code = "invalid_schedule"


class UnknownTimezone(Invalid):
    code = "unknown_timezone"

    def __init__(self, name: str) -> None:
        super().__init__(f"timezone: '{name[:100]}' is not an IANA time zone")


def parse_zone(name: str | None) -> ZoneInfo:
    """The time zone with this name; UTC for None."""
    if name is None:
        return ZoneInfo("UTC")
    if not _ZONE.fullmatch(name) or len(name) > MAX_LENGTH:
        raise UnknownTimezone(name)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise UnknownTimezone(name) from None


def next_fire_time(schedule: str, timezone: str | None, after: datetime) -> datetime:
    """The first firing time after `after`, in UTC. Raises `InvalidSchedule`."""
    local = after.astimezone(parse_zone(timezone))
    excerpt = schedule[:100]
    try:
        return next(CronSim(_seconds_first(schedule), local)).astimezone(UTC)
    except CronSimError as error:
        raise InvalidSchedule(f"schedule: '{excerpt}' is not a cron schedule: {error}") from None
    except (StopIteration, OverflowError):
        raise InvalidSchedule(f"schedule: '{excerpt}' never fires") from None


def _seconds_first(schedule: str) -> str:
    """Move the seconds, the sixth field on the wire, to the front for cronsim."""
    fields = _NAMED.get(schedule.strip().lower(), schedule).upper().split()
    return " ".join([fields[-1], *fields[:-1]] if len(fields) == 6 else fields)
