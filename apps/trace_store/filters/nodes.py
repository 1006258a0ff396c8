"""The syntax tree of a filter; values have the type of their field."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from apps.trace_store.filters.fields import Field, ItemKind


class Comparison(StrEnum):
    """A comparison of a condition. A missing value fails all of them."""

    EQUAL = "eq"
    """For a field with several values (tags): any of them, here and below."""
    GREATER = "gt"
    GREATER_OR_EQUAL = "gte"
    LESS = "lt"
    LESS_OR_EQUAL = "lte"
    AMONG = "in"
    LIKE = "like"
    ILIKE = "ilike"
    PRESENT = "is_not_null"
    CONTAINS = "has"
    """An object contains an object (metadata)."""
    EXISTS = "exists"
    """An object has a key (metadata)."""
    SEARCH = "search"
    """Contains every word of the text."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object as text that jsonb takes."""

    text: str


Value: TypeAlias = str | Decimal | bool | datetime | UUID | JsonObject
Values: TypeAlias = Value | tuple[Value, ...] | None
"""A tuple for `AMONG`, `None` for `PRESENT`, one value for all others."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a field of a run, or of one item of a run, with a value."""

    field: Field
    comparison: Comparison
    value: Values = None


@dataclass(frozen=True, slots=True)
class AnyItem:
    """One item (a metadata pair, a feedback row) meets `conditions` and none of `but_not`."""

    items: ItemKind
    conditions: tuple[Condition, ...]
    """At least one."""
    but_not: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """All runs that do not match the part."""

    part: Expression


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expression, ...]


Expression: TypeAlias = And | Or | Not | AnyItem | Condition
