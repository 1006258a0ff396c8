"""Edits the text of a filter by clause, so that a click can add or remove a clause; locates errors.

Other clauses of the user's text stay unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.trace_store import filters
from apps.trace_store.errors import FilterError
from apps.trace_store.filters.fields import FIELDS, OPERATORS

_OPEN, _CLOSE = "([", ")]"
_PAIR_FIELD = re.compile(r"\w+\s*\(\s*(?:metadata|input|output|feedback)_")
_VALUES = re.compile(r"^(?P<call>eq|in)\((?P<field>\w+),(?P<value>.+)\)$", re.DOTALL)


@dataclass(frozen=True)
class FilterProblem:
    """An invalid filter with the position of its error."""

    text: str
    line: str
    column: int | None
    field: str = "filter"
    title: str = "filter"

    @property
    def caret(self) -> str:
        return "" if self.column is None else " " * max(0, self.column - 1) + "^"


def split_clauses(text: str) -> list[str]:
    """Return the clauses of a top-level `and(…)`; any other text is a single clause."""
    text = text.strip()
    if not text:
        return []
    inner = _and_arguments(text)
    if inner is None:
        return [text]
    parts = [clause for part in inner for clause in [part.strip()] if clause]
    # Conditions on a key and on its value form a pair, which must not be separated.
    return [text] if len(parts) > 1 and all(map(_PAIR_FIELD.match, parts)) else parts


def join_clauses(clauses: Sequence[str]) -> str:
    if len(clauses) < 2:
        return "".join(clauses)
    return f"and({', '.join(clauses)})"


def remove_clause(text: str, clause: str) -> str:
    """Return the text without the clauses that are equal to this clause."""
    data = normalize_clause(clause)
    return join_clauses([other for other in split_clauses(text) if normalize_clause(other) != data])


def toggle_clause(text: str, clause: str) -> str:
    """Remove the clause from the text, or append it if absent."""
    if has_clause(text, clause):
        return remove_clause(text, clause)
    return join_clauses([*split_clauses(text), clause])


def has_clause(text: str, clause: str) -> bool:
    data = normalize_clause(clause)
    return any(normalize_clause(other) == data for other in split_clauses(text))


def selected_values(text: str, field: str) -> list[str]:
    """Return the values of the `eq(field, …)` or `in(field, […])` clause; empty without one."""
    for clause in split_clauses(text):
        match = _VALUES.match(normalize_clause(clause))
        if match is None or match["field"] != field:
            continue
        try:
            value = json.loads(match["value"])
        except (ValueError, RecursionError):
            continue
        values = value if isinstance(value, list) else [value]
        if all(isinstance(item, str) for item in values):
            return values
    return []


def toggle_value(text: str, field: str, value: str) -> str:
    """Add the value to the field's clause, or remove it if present."""
    values = selected_values(text, field)
    clauses = split_clauses(remove_field(text, field))
    values = [item for item in values if item != value] if value in values else [*values, value]
    if values:
        clauses.append(build_clause(field, values))
    return join_clauses(clauses)


def remove_field(text: str, field: str) -> str:
    """Remove the clauses that restrict the field's values."""
    return join_clauses(
        [clause for clause in split_clauses(text) if not selected_values(clause, field)]
    )


def build_clause(field: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"eq({field}, {quote_value(values[0])})"
    return f"in({field}, [{', '.join(map(quote_value, values))}])"


def quote_value(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def normalize_clause(text: str) -> str:
    """Return the text without white space outside quotes, for comparison."""
    return "".join(
        piece if piece[:1] in ("'", '"') else re.sub(r"\s+", "", piece)
        for piece in _split_quoted(text)
    )


def _split_quoted(text: str) -> list[str]:
    """Split the text into quoted strings and the text between them."""
    return re.findall(r'"(?:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\])*\'?|[^"\']+', text, re.DOTALL)


def _and_arguments(text: str) -> list[str] | None:
    """Return the arguments of a top-level `and(…)`; None for any other text."""
    head = re.match(r"and\s*\(", text)
    if head is None:
        return None
    parts: list[str] = []
    depth, part = 1, ""
    pieces = _split_quoted(text[head.end() :])
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


def filter_suggestions() -> dict[str, Any]:
    """Return the fields, with description and operators, and the functions for `<filter-input>`."""
    return {
        "fields": [
            {"name": field.name, "about": field.about, "operators": OPERATORS[field.kind]}
            for field in FIELDS
        ],
        "calls": ["and", "or", "not", "search", "exists"],
    }


def parse_error(text: str) -> FilterError | None:
    try:
        filters.parse(text) if text else None
    except FilterError as error:
        return error
    return None


def locate_problem(error: FilterError, text: str) -> FilterProblem:
    details = error.errors[0] if error.errors else {}
    lines = text.splitlines() or [""]
    number = min(max(1, details.get("line", 1)), len(lines))
    return FilterProblem(
        details.get("message", error.detail), lines[number - 1], details.get("column")
    )
