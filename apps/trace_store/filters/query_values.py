"""Values of the query bar's clauses, and errors that name their place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from apps.trace_store.errors import FilterError
from apps.trace_store.filters import literals
from apps.trace_store.filters.syntax import SourcePosition, String

_NUMBER = re.compile(r"(?P<digits>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<unit>[kmb]?)", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
_FACTORS = {"": Decimal(1), "k": Decimal(10**3), "m": Decimal(10**6), "b": Decimal(10**9)}
_UNIT_WORDS = re.compile(
    r"(?<=\d)\s*(?P<unit>milliseconds?|msecs?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?)\b"
)
_UNITS = {"mil": "ms", "mse": "ms", "sec": "s", "min": "m", "hou": "h", "hr": "h", "day": "d"}


@dataclass(frozen=True, slots=True)
class ValuePiece:
    """A part of a value; `*` is a wildcard only outside of quotes."""

    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class QueryValue:
    """The value of a clause, with its place in the query."""

    pieces: tuple[ValuePiece, ...]
    start: int
    end: int

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def is_quoted(self) -> bool:
        return any(piece.is_quoted for piece in self.pieces)

    @property
    def has_wildcard(self) -> bool:
        return any("*" in piece.text for piece in self.pieces if not piece.is_quoted)

    @property
    def is_presence(self) -> bool:
        return self.text == "*" and not self.is_quoted

    @property
    def pattern(self) -> str:
        """The value as a pattern of `ilike`."""
        escaped = (
            escape_pattern(piece.text)
            if piece.is_quoted
            else escape_pattern(piece.text).replace("*", "%")
            for piece in self.pieces
        )
        return "".join(escaped)


def escape_pattern(text: str) -> str:
    """Escape the wildcards of `ilike`."""
    return text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")


def parse_duration(text: str) -> Decimal | None:
    plain = _UNIT_WORDS.sub(lambda match: _short_unit(match["unit"]), text.lower())
    try:
        return literals.parse_seconds(String(plain, SourcePosition(1, 1)))
    except FilterError:
        return None


def _short_unit(word: str) -> str:
    return next(unit for prefix, unit in _UNITS.items() if word.startswith(prefix))


def parse_number(text: str) -> Decimal | None:
    """Parse digits with an optional `k`, `m` or `b`; thousands may be separated by commas."""
    plain = text.strip().lower().replace("_", "")
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return None
    try:
        value = literals.parse_number(String(match["digits"], SourcePosition(1, 1)))
    except FilterError:
        return None
    return value * _FACTORS[match["unit"]]


def parse_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def query_error(text: str, start: int, end: int, message: str, suggestion: str = "") -> FilterError:
    before = text[:start]
    line, column = before.count("\n") + 1, start - before.rfind("\n")
    return FilterError(
        message,
        [
            {
                "line": line,
                "column": column,
                "start": start,
                "end": max(end, start + 1),
                "message": message,
                "suggestion": suggestion,
            }
        ],
    )
