"""Registry of usage sources: each app reports the usage in its own records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from uuid import UUID

Figures = Mapping[UUID, Mapping[str, float]]
"""By workspace and measure (`models.MEASURES`)."""
Source = Callable[[datetime, datetime, Collection[UUID] | None], Figures]
"""Called with begin and end (whole hours) and workspaces, or None for all."""

_sources: list[Source] = []


def register(source: Source) -> None:
    """Add a source. Safe to repeat."""
    if source not in _sources:
        _sources.append(source)


def collect(begin: datetime, end: datetime, workspaces: Collection[UUID] | None) -> list[Figures]:
    """Return the figures of every source."""
    return [source(begin, end, workspaces) for source in _sources]


def total(begin: datetime, end: datetime, workspaces: Collection[UUID]) -> dict[str, float]:
    """Return the sums over the workspaces."""
    sums: dict[str, float] = {}
    for figures in collect(begin, end, workspaces):
        for measures in figures.values():
            for measure, value in measures.items():
                sums[measure] = sums.get(measure, 0) + value
    return sums
