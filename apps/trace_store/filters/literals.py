"""Parses literals to values of each field type, limited to what PostgreSQL accepts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from apps.trace_store.filters.nodes import JsonObject
from apps.trace_store.filters.syntax import UNSTORABLE, Call, ListLiteral, Name, Number, String
from apps.trace_store.filters.text_matching import split_words

Literal: TypeAlias = Name | Number | String

_MAX_DIGITS = 60
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(us|ms|s|min|m|h|d)", re.ASCII)
_UNITS = {
    "us": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_MAX_OBJECT_DEPTH = 50


def is_null(argument: Literal | Call | ListLiteral) -> bool:
    return isinstance(argument, Name) and argument.text.lower() == "null"


def is_boolean(literal: Literal) -> bool:
    return literal.text.lower() in {"true", "false"}


def parse_text(literal: Literal) -> str:
    """The literal as text: numbers as written, booleans as in JSON."""
    return literal.text.lower() if isinstance(literal, Name) else literal.text


def parse_pattern(literal: Literal) -> str:
    text = parse_text(literal)
    backslashes = len(text) - len(text.rstrip("\\"))
    if backslashes % 2:
        raise literal.position.error(
            "A pattern cannot end with a single backslash. Write a backslash as `\\\\`."
        )
    return text


def parse_search_text(literal: Literal) -> str:
    """The search text, which must contain a word."""
    text = parse_text(literal)
    if next(split_words(text), None) is None:
        raise literal.position.error("A search needs at least one letter or digit.")
    return text


def parse_number(literal: Literal) -> Decimal:
    """Parse a number; true and false count as 1 and 0."""
    if is_boolean(literal):
        return Decimal(literal.text.lower() == "true")
    if not _NUMBER.fullmatch(literal.text):
        raise literal.position.error(f"`{literal.text:.60}` is not a number.")
    value = Decimal(literal.text)
    if len(value.as_tuple().digits) > _MAX_DIGITS or (
        value and abs(value.adjusted()) > _MAX_DIGITS
    ):
        raise literal.position.error(f"A number has at most {_MAX_DIGITS} digits.")
    return value


def parse_seconds(literal: Literal) -> Decimal:
    """Parse a duration such as `2.5` (seconds), `"750ms"` or `"1h30m"` to seconds."""
    if isinstance(literal, String):
        duration = "".join(literal.text[:_MAX_DIGITS].split())
        parts = list(_DURATION.finditer(duration))
        if parts and "".join(part[0] for part in parts) == duration:
            return sum((Decimal(part[1]) * _UNITS[part[2]] for part in parts), Decimal(0))
    if isinstance(literal, Name) or not _NUMBER.fullmatch(literal.text):
        raise literal.position.error(
            f"`{literal.text:.60}` is not a duration."
            ' Write seconds, such as `2.5`, or a text such as `"750ms"` or `"1h30m"`.'
        )
    return parse_number(literal)


def parse_time(literal: Literal) -> datetime:
    """Parse a time to UTC; a time without a zone is in UTC."""
    try:
        if not isinstance(literal, String):
            raise ValueError(literal.text)  # noqa: TRY004  (the error is raised below)
        value = datetime.fromisoformat(literal.text)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        raise literal.position.error(
            f'`{literal.text:.60}` is not a time. Write one such as `"2026-01-02T03:04:05Z"`.'
        ) from None


def parse_uuid(literal: Literal) -> UUID:
    try:
        return UUID(literal.text)
    except ValueError:
        raise literal.position.error(f"`{literal.text:.60}` is not an id (a UUID).") from None


def parse_boolean(literal: Literal) -> bool:
    if literal.text.lower() in {"true", "1"}:
        return True
    if literal.text.lower() in {"false", "0"}:
        return False
    raise literal.position.error(f"`{literal.text:.60}` is neither true nor false.")


def parse_json_object(literal: Literal) -> JsonObject:
    """The JSON object as text, with numbers that PostgreSQL can store."""
    try:
        value = json.loads(literal.text, parse_constant=_reject_constant, parse_float=_decimal)
        if not isinstance(value, dict) or _depth(value) > _MAX_OBJECT_DEPTH:
            raise ValueError
    except (ValueError, RecursionError):
        raise literal.position.error(
            'Write a JSON object here, such as `{"key": "value"}`.'
        ) from None
    return JsonObject(UNSTORABLE.sub("\ufffd", _dump(value)))


def _reject_constant(constant: str) -> Any:
    raise ValueError(constant)


def _decimal(digits: str) -> Decimal:
    value = Decimal(digits)
    if value and abs(value.adjusted()) > 300:
        raise ValueError(digits)
    return value


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _dump(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_dump(k)}: {_dump(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_dump, value)) + "]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)
