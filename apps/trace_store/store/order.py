"""The order of lists: where a run stands in it, and what lies before and after a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.trace_store.store.conditions import Asked, Condition
from apps.trace_store.store.fetching import Key
from apps.trace_store.store.rows import Stored

Place = tuple[datetime, UUID]
"""Where a run stands in the order of lists."""
Window = tuple[datetime | None, datetime | None]
"""From, and up to but without."""

PROBED = 2000
"""So many of the first runs are looked at before the index of terms is."""
FIRST = timedelta(days=3)
LARGEST = 2000
_AHEAD = timedelta(days=2)


class Line:
    """What is asked for in the order of its list, after `place` if one is given."""

    def __init__(self, asked: Asked, place: Place | None) -> None:
        self.asked = asked
        self.place = place
        self.oldest_first = asked.query.oldest_first
        self.direction = "ASC" if self.oldest_first else "DESC"

    def order(self, table: str) -> str:
        return f"{table}.placed_at {self.direction}, {table}.id {self.direction}"

    def windows(self, widest: timedelta, place: Place | None) -> Iterator[Window]:
        """Stretches of time in order, each planned for its own days: the newest few days first."""
        since, end = self.asked.since, self.end(place)
        if self.oldest_first or self.asked.is_pointed or end is None:
            yield since, end
            return
        # Nearly nothing is placed in the future.
        width = FIRST if place is None else timedelta(days=1)
        while width <= widest and (since is None or end - width > since):
            yield end - width, end
            end, width = end - width, 2 * width
        yield since, end

    def end(self, place: Place | None) -> datetime | None:
        if self.oldest_first or self.asked.is_pointed:
            return None if self.asked.until is None else self.asked.until + timedelta.resolution
        latest = datetime.now(UTC) + _AHEAD
        if self.asked.until is not None:
            latest = min(latest, self.asked.until + timedelta.resolution)
        if place is not None:
            latest = min(latest, place[0] + timedelta.resolution)
        return latest

    def bounds(self, window: Window, place: Place | None, table: str = "r") -> list[Condition]:
        bounds = between(window, table)
        if place is not None:
            bounds.append(self.beside(place, table, is_after=True))
        return bounds

    def beside(self, place: Place, table: str, *, is_after: bool) -> Condition:
        """After the place in the order of the list; or before it, or there."""
        side = ">" if self.oldest_first == is_after else "<"
        # The second condition is implied; it is the one that partitions are pruned by.
        strictly = f"({table}.placed_at, {table}.id) {side}{'' if is_after else '='} (%s, %s)"
        return f"{strictly} AND {table}.placed_at {side}= %s", [*place, place[0]]

    def of_projects(self, table: str) -> Condition:
        projects = list(self.asked.query.project_ids or ())
        # As an equation: only so does an index give the order.
        if len(projects) == 1:
            return f"{table}.project_id = %s", projects
        return f"{table}.project_id = ANY(%s)", [projects]

    def is_after(self, place: Place) -> bool:
        if self.place is None:
            return True
        return place > self.place if self.oldest_first else place < self.place


def between(window: Window, table: str) -> list[Condition]:
    begin, end = window
    conditions: list[Condition] = []
    if begin is not None:
        conditions.append((f"{table}.placed_at >= %s", [begin]))
    if end is not None:
        conditions.append((f"{table}.placed_at < %s", [end]))
    return conditions


def place_of(row: Stored) -> Place:
    return row[0].placed_at, row[0].id


def key_of(row: Stored) -> Key:
    return row[0].id, row[0].project_id, row[0].placed_at


def all_true(conditions: Sequence[Condition]) -> str:
    return " AND ".join(f"({text})" for text, _ in conditions) or "true"


def values_of(conditions: Sequence[Condition]) -> list[Any]:
    return [value for _, given in conditions for value in given]
