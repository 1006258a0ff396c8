"""Dotted orders: `<time>Z<run id>` of each run from the root down, joined by dots.

Their string order is the depth-first order of the tree. The text is stored byte for byte, because
some clients put a counter into the last digits of the time, except for times in a wrong unit.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from apps.core.timestamps import correct_unit

_TIME_LENGTH = 22  # YYYYMMDDTHHMMSSffffffZ
SEGMENT_LENGTH = _TIME_LENGTH + 36
EARLIEST_START = datetime(1900, 1, 1, tzinfo=UTC)
"""The earliest start of a run; arithmetic with it may go back by years."""
MAX_CLOCK_SKEW = timedelta(days=1)
"""The start of a run and the time in its dotted order differ by less than this."""
_MAX_CLOCK_LEAD = timedelta(days=1)
_FIRST_YEAR, _LAST_YEAR = "1900", "8999"


class TreePosition(NamedTuple):
    """The position of a run in its trace."""

    dotted_order: str
    trace_id: UUID
    parent_run_id: UUID | None
    partition_time: datetime


class InvalidDottedOrder(ValueError):
    """The dotted order is malformed or contradicts the ids of the run."""


def is_far_apart(start_time: datetime, partition_time: datetime) -> bool:
    """Whether reads by start time would not find a run with this time in its dotted order."""
    return abs(start_time - partition_time) >= MAX_CLOCK_SKEW


def latest_start_time(now: datetime | None = None) -> datetime:
    """The latest start of a run that is accepted: clocks differ, but not by days."""
    return (now or datetime.now(UTC)) + _MAX_CLOCK_LEAD


def format_segment(timestamp: datetime, run_id: UUID) -> str:
    return f"{_format_time(timestamp.astimezone(UTC))}{run_id}"


def _format_time(timestamp: datetime) -> str:
    # %Y does not pad early years with zeros.
    return f"{timestamp.year:04d}{timestamp:%m%dT%H%M%S%fZ}"


def parse_position(
    dotted_order: str,
    *,
    run_id: UUID,
    trace_id: UUID | None = None,
    parent_run_id: UUID | None = None,
) -> TreePosition:
    """Parse a dotted order, and correct times in a wrong unit.

    Raises `InvalidDottedOrder` if it contradicts the given ids.
    """
    if dotted_order.startswith("1970") or ".1970" in dotted_order:
        dotted_order = _correct_units(dotted_order)
    # Fast path: compare hexadecimal digits, which is cheaper than building UUIDs.
    length = len(dotted_order)
    try:
        if (length + 1) % (SEGMENT_LENGTH + 1) or not _same_id(dotted_order[-36:], run_id):
            raise ValueError
        partition_time = _parse_time(dotted_order[-SEGMENT_LENGTH:])
        if length == SEGMENT_LENGTH:
            if parent_run_id is not None or trace_id not in {None, run_id}:
                raise ValueError
            return TreePosition(dotted_order, run_id, None, partition_time)
        first, above = (
            dotted_order[_TIME_LENGTH:SEGMENT_LENGTH],
            dotted_order[-SEGMENT_LENGTH - 37 : -SEGMENT_LENGTH - 1],
        )
        if trace_id is None or not _same_id(first, trace_id):
            raise ValueError
        if parent_run_id is None:
            parent_run_id = UUID(above)
        elif not _same_id(above, parent_run_id):
            raise ValueError
        if dotted_order.count(".") != length // (SEGMENT_LENGTH + 1):
            raise ValueError
        for at in range(0, length - SEGMENT_LENGTH, SEGMENT_LENGTH + 1):
            _parse_time(dotted_order[at : at + _TIME_LENGTH])
    except ValueError:
        return _parse_strictly(dotted_order, run_id, trace_id, parent_run_id)
    return TreePosition(dotted_order, trace_id, parent_run_id, partition_time)


def _correct_units(dotted_order: str) -> str:
    segments = dotted_order.split(".")
    for number, segment in enumerate(segments):
        try:
            time = _parse_time(segment)
        except ValueError:
            continue
        if (corrected := correct_unit(time)) != time:
            segments[number] = _format_time(corrected) + segment[_TIME_LENGTH:]
    return ".".join(segments)


def _same_id(text: str, run_id: UUID) -> bool:
    return text.replace("-", "") == f"{run_id.int:032x}"


def _parse_strictly(
    dotted_order: str, run_id: UUID, trace_id: UUID | None, parent_run_id: UUID | None
) -> TreePosition:
    segments = dotted_order.split(".")
    last = segments[-1]
    try:
        partition_time = [_parse_time(segment) for segment in segments][-1]
        own_id, first_id = UUID(last[_TIME_LENGTH:]), UUID(segments[0][_TIME_LENGTH:])
        above_id = UUID(segments[-2][_TIME_LENGTH:]) if len(segments) > 1 else None
    except ValueError:
        raise InvalidDottedOrder(
            _describe("dotted_order is malformed", dotted_order, run_id)
        ) from None
    if any(len(segment) != SEGMENT_LENGTH for segment in segments):
        raise InvalidDottedOrder(_describe("dotted_order is malformed", dotted_order, run_id))
    values = (dotted_order, run_id, trace_id, parent_run_id)
    if own_id != run_id:
        raise InvalidDottedOrder(
            _describe("run_id does not match last part of dotted_order", *values)
        )
    if above_id is not None and trace_id == run_id:
        raise InvalidDottedOrder(
            _describe("dotted_order must contain a single part for root runs", *values)
        )
    if trace_id is not None and trace_id != first_id:
        raise InvalidDottedOrder(
            _describe("trace_id does not match first part of dotted_order", *values)
        )
    if parent_run_id is not None and above_id is None:
        raise InvalidDottedOrder(
            _describe("dotted_order must contain two or more parts for child runs", *values)
        )
    if parent_run_id is not None and parent_run_id != above_id:
        raise InvalidDottedOrder(
            _describe("parent_run_id does not match last-but-one part of dotted_order", *values)
        )
    return TreePosition(dotted_order, first_id, above_id, partition_time)


def root_position(run_id: UUID, start_time: datetime) -> TreePosition:
    """The position of a run without a parent."""
    return TreePosition(format_segment(start_time, run_id), run_id, None, start_time)


def child_position(
    parent_dotted_order: str, *, parent_run_id: UUID, run_id: UUID, start_time: datetime
) -> TreePosition:
    """The position of a run below a stored parent."""
    trace_id = UUID(parent_dotted_order[_TIME_LENGTH:SEGMENT_LENGTH])
    dotted_order = f"{parent_dotted_order}.{format_segment(start_time, run_id)}"
    return TreePosition(dotted_order, trace_id, parent_run_id, start_time)


def segment_times(dotted_order: str) -> list[datetime]:
    """The times of the segments, root first."""
    length = SEGMENT_LENGTH + 1
    return [_parse_time(dotted_order[at:]) for at in range(0, len(dotted_order), length)]


def root_time(dotted_order: str) -> datetime:
    """The time of the first segment: the partition time of the root."""
    return _parse_time(dotted_order)


def _parse_time(text: str) -> datetime:
    digits = text[:8] + text[9:21]
    if text[8:9] != "T" or text[21:22] != "Z" or not (digits.isascii() and digits.isdecimal()):
        raise ValueError
    if not _FIRST_YEAR <= text[:4] <= _LAST_YEAR:
        raise ValueError
    return datetime.fromisoformat(f"{text[:15]}.{text[15:21]}+00:00")


def _describe(
    what: str,
    dotted_order: str,
    run_id: UUID,
    trace_id: UUID | None = None,
    parent_run_id: UUID | None = None,
) -> str:
    return (
        f"{what}. run_id={run_id}, trace_id={trace_id}, dotted_order={dotted_order[:500]},"
        f" parent_run_id={parent_run_id}"
    )
