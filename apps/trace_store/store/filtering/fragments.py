"""Pieces of SQL with their values, and what is known of a condition that SQL cannot decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition. Where it comes out as NULL it is not true, as everywhere in SQL."""

    text: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Over:
    """What a filter is compiled for."""

    workspace_id: UUID
    table: str
    """`tracing_run`, or an alias of it."""
    as_settled: bool = False
    """Whether sums count as they were settled last, so that SQL can decide on them."""


TRUE, FALSE = Sql("true"), Sql("false")


@dataclass(frozen=True, slots=True)
class Bounds:
    """A condition between two: true wherever `surely` is, and nowhere that `perhaps` is not."""

    perhaps: Sql
    surely: Sql

    @property
    def is_exact(self) -> bool:
        return self.perhaps == self.surely


def exactly(text: str, *values: Any) -> Bounds:
    found = Sql(text, values)
    return Bounds(found, found)


def at_most(text: str, *values: Any) -> Bounds:
    """What may be true only where this is."""
    return Bounds(Sql(text, values), FALSE)


def both(parts: Sequence[Sql]) -> Sql:
    return _joined(parts, "AND", nothing=TRUE, decides=FALSE)


def either(parts: Sequence[Sql]) -> Sql:
    return _joined(parts, "OR", nothing=FALSE, decides=TRUE)


def neither(part: Sql) -> Sql:
    """The complement: also where the part is NULL."""
    if part == TRUE:
        return FALSE
    if part == FALSE:
        return TRUE
    return Sql(f"({part.text}) IS NOT TRUE", part.values)


def _joined(parts: Sequence[Sql], word: str, *, nothing: Sql, decides: Sql) -> Sql:
    telling = [part for part in parts if part != nothing]
    if decides in telling:
        return decides
    if len(telling) < 2:
        return telling[0] if telling else nothing
    text = f" {word} ".join(f"({part.text})" for part in telling)
    return Sql(text, tuple(value for part in telling for value in part.values))
