"""Where figures come from: each app that is used says how much, from records of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from uuid import UUID

Figures = Mapping[UUID, Mapping[str, float]]
"""By workspace and measure (`models.MEASURES`)."""
Source = Callable[[datetime, datetime, Collection[UUID] | None], Figures]
"""From a moment until another, of these workspaces or of all; whole hours."""

_sources: list[Source] = []


def register(source: Source) -> None:
    """Count what the source says, from now on. Safe to repeat."""
    if source not in _sources:
        _sources.append(source)


def each(begin: datetime, end: datetime, workspaces: Collection[UUID] | None) -> list[Figures]:
    """What every source says of the span."""
    return [source(begin, end, workspaces) for source in _sources]


def total(begin: datetime, end: datetime, workspaces: Collection[UUID]) -> dict[str, float]:
    """The sums over these workspaces."""
    sums: dict[str, float] = {}
    for figures in each(begin, end, workspaces):
        for measures in figures.values():
            for measure, value in measures.items():
                sums[measure] = sums.get(measure, 0) + value
    return sums
