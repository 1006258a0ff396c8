"""Editing of filter text by clause, so that a click can add or remove one.

Only whole clauses are added or removed; the rest of the user's text stays unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_OPEN, _CLOSE = "([", ")]"
_PAIR_FIELD = re.compile(r"\w+\s*\(\s*(?:metadata|input|output|feedback)_")
_VALUES = re.compile(r"^(?P<call>eq|in)\((?P<field>\w+),(?P<value>.+)\)$", re.DOTALL)


def split_clauses(text: str) -> list[str]:
    """Return the clauses of a top-level `and(…)`; any other text is a single clause."""
    text = text.strip()
    if not text:
        return []
    inner = _and_arguments(text)
    if inner is None:
        return [text]
    parts = [clause for part in inner for clause in [part.strip()] if clause]
    # Conditions on a key and its value form a pair: separately they would mean something else.
    return [text] if len(parts) > 1 and all(map(_PAIR_FIELD.match, parts)) else parts


def join_clauses(clauses: Sequence[str]) -> str:
    if len(clauses) < 2:
        return "".join(clauses)
    return f"and({', '.join(clauses)})"


def remove_clause(text: str, clause: str) -> str:
    """Return the text without all clauses equal to this one."""
    data = describe_clause(clause)
    return join_clauses([kept for kept in split_clauses(text) if describe_clause(kept) != data])


def toggle_clause(text: str, clause: str) -> str:
    """Remove the clause from the text, or append it if absent."""
    if has_clause(text, clause):
        return remove_clause(text, clause)
    return join_clauses([*split_clauses(text), clause])


def has_clause(text: str, clause: str) -> bool:
    data = describe_clause(clause)
    return any(describe_clause(kept) == data for kept in split_clauses(text))


def chosen_values(text: str, field: str) -> list[str]:
    """Return the values of the `eq(field, …)` or `in(field, […])` clause; empty without one."""
    for clause in split_clauses(text):
        match = _VALUES.match(describe_clause(clause))
        if match is None or match["field"] != field:
            continue
        try:
            value = json.loads(match["value"])
        except ValueError:
            continue
        values = value if isinstance(value, list) else [value]
        if all(isinstance(item, str) for item in values):
            return values
    return []


def toggle_value(text: str, field: str, value: str) -> str:
    """Add the value to the field's clause, or remove it if present."""
    values = chosen_values(text, field)
    kept = split_clauses(remove_field(text, field))
    values = [item for item in values if item != value] if value in values else [*values, value]
    if values:
        kept.append(build_clause(field, values))
    return join_clauses(kept)


def remove_field(text: str, field: str) -> str:
    """Remove the clauses that restrict the field's values."""
    return join_clauses(
        [clause for clause in split_clauses(text) if not chosen_values(clause, field)]
    )


def build_clause(field: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"eq({field}, {quote_value(values[0])})"
    return f"in({field}, [{', '.join(map(quote_value, values))}])"


def quote_value(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def describe_clause(text: str) -> str:
    """Return the text without white space outside quotes, for comparison."""
    return "".join(
        piece if piece[:1] in ("'", '"') else re.sub(r"\s+", "", piece)
        for piece in _top_level_arguments(text)
    )


def _top_level_arguments(text: str) -> list[str]:
    """Split the text into quoted strings and the text between them."""
    return re.findall(r'"(?:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\])*\'?|[^"\']+', text, re.DOTALL)


def _and_arguments(text: str) -> list[str] | None:
    """Return the arguments of a top-level `and(…)`; None for any other text."""
    head = re.match(r"and\s*\(", text)
    if head is None:
        return None
    parts: list[str] = []
    depth, part = 1, ""
    pieces = _top_level_arguments(text[head.end() :])
    for number, piece in enumerate(pieces):
        if piece[:1] in ("'", '"'):
            part += piece
            continue
        for index, letter in enumerate(piece):
            depth += (letter in _OPEN) - (letter in _CLOSE)
            if depth == 0:
                is_last = number == len(pieces) - 1 and not piece[index + 1 :].strip()
                return [*parts, part] if is_last else None
            if letter == "," and depth == 1:
                parts.append(part)
                part = ""
            else:
                part += letter
    return None
