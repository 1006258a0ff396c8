"""Where a run stands in its tree: `<time>Z<run id>` for each run from the root down, with dots.

Plain string order of dotted orders is the depth-first order of the tree. The text is kept byte for
byte: some clients put a counter into the last digits of the time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

_TIME = 22  # YYYYMMDDTHHMMSSffffffZ
_SEGMENT = _TIME + 36
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
"""Before this no run begins; those who reckon with its time may go back from it by years."""
_FIRST_YEAR, _LAST_YEAR = "1900", "8999"


class Place(NamedTuple):
    """A run's place in its trace."""

    dotted_order: str
    trace_id: UUID
    parent_run_id: UUID | None
    placed_at: datetime


class Misplaced(ValueError):
    """The dotted order is no dotted order, or contradicts the ids beside it."""


def segment(moment: datetime, run_id: UUID) -> str:
    moment = moment.astimezone(UTC)
    # Not %Y, which leaves the zeros of early years away.
    return f"{moment.year:04d}{moment:%m%dT%H%M%S%fZ}{run_id}"


def place_of(
    dotted_order: str,
    *,
    run_id: UUID,
    trace_id: UUID | None = None,
    parent_run_id: UUID | None = None,
) -> Place:
    """The place that a dotted order tells; `Misplaced` says how it contradicts the ids."""
    # Nearly all are right, so digits are compared first: to make an id of them costs more.
    length = len(dotted_order)
    try:
        if (length + 1) % (_SEGMENT + 1) or not _is(dotted_order[-36:], run_id):
            raise ValueError
        placed_at = _time(dotted_order[-_SEGMENT:])
        if length == _SEGMENT:
            if parent_run_id is not None or trace_id not in {None, run_id}:
                raise ValueError
            return Place(dotted_order, run_id, None, placed_at)
        first, above = dotted_order[_TIME:_SEGMENT], dotted_order[-_SEGMENT - 37 : -_SEGMENT - 1]
        if trace_id is None or not _is(first, trace_id):
            raise ValueError
        if parent_run_id is None:
            parent_run_id = UUID(above)
        elif not _is(above, parent_run_id):
            raise ValueError
        if dotted_order.count(".") != length // (_SEGMENT + 1):
            raise ValueError
        for at in range(0, length - _SEGMENT, _SEGMENT + 1):
            _time(dotted_order[at : at + _TIME])
    except ValueError:
        return _carefully_placed(dotted_order, run_id, trace_id, parent_run_id)
    return Place(dotted_order, trace_id, parent_run_id, placed_at)


def _is(text: str, found: UUID) -> bool:
    return text.replace("-", "") == f"{found.int:032x}"


def _carefully_placed(
    dotted_order: str, run_id: UUID, trace_id: UUID | None, parent_run_id: UUID | None
) -> Place:
    segments = dotted_order.split(".")
    last = segments[-1]
    try:
        placed_at = [_time(one) for one in segments][-1]
        own_id, first_id = UUID(last[_TIME:]), UUID(segments[0][_TIME:])
        above_id = UUID(segments[-2][_TIME:]) if len(segments) > 1 else None
    except ValueError:
        raise Misplaced(_told("dotted_order is malformed", dotted_order, run_id)) from None
    if any(len(one) != _SEGMENT for one in segments):
        raise Misplaced(_told("dotted_order is malformed", dotted_order, run_id))
    known = (dotted_order, run_id, trace_id, parent_run_id)
    if own_id != run_id:
        raise Misplaced(_told("run_id does not match last part of dotted_order", *known))
    if above_id is not None and trace_id == run_id:
        raise Misplaced(_told("dotted_order must contain a single part for root runs", *known))
    if trace_id is not None and trace_id != first_id:
        raise Misplaced(_told("trace_id does not match first part of dotted_order", *known))
    if parent_run_id is not None and above_id is None:
        raise Misplaced(_told("dotted_order must contain two or more parts for child runs", *known))
    if parent_run_id is not None and parent_run_id != above_id:
        raise Misplaced(
            _told("parent_run_id does not match last-but-one part of dotted_order", *known)
        )
    return Place(dotted_order, first_id, above_id, placed_at)


def place_root(run_id: UUID, start_time: datetime) -> Place:
    """The place of a run that has nothing above it."""
    return Place(segment(start_time, run_id), run_id, None, start_time)


def place_below(
    parent_dotted_order: str, *, parent_run_id: UUID, run_id: UUID, start_time: datetime
) -> Place:
    """The place of a run whose parent is known."""
    trace_id = UUID(parent_dotted_order[_TIME:_SEGMENT])
    dotted_order = f"{parent_dotted_order}.{segment(start_time, run_id)}"
    return Place(dotted_order, trace_id, parent_run_id, start_time)


def times_of(dotted_order: str) -> list[datetime]:
    """The times of the run and of those above it, the root's first."""
    length = _SEGMENT + 1
    return [_time(dotted_order[at:]) for at in range(0, len(dotted_order), length)]


def root_placed_at(dotted_order: str) -> datetime:
    """The time in the first segment of a dotted order: where the root of the trace is placed."""
    return _time(dotted_order)


def _time(text: str) -> datetime:
    digits = text[:8] + text[9:21]
    if text[8:9] != "T" or text[21:22] != "Z" or not (digits.isascii() and digits.isdecimal()):
        raise ValueError
    if not _FIRST_YEAR <= text[:4] <= _LAST_YEAR:
        raise ValueError
    return datetime.fromisoformat(f"{text[:15]}.{text[15:21]}+00:00")


def _told(
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
