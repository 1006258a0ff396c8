"""A filter's text as the list of what must all hold, so that a click can add or remove one.

The text stays the person's own: only whole clauses come and go, nothing is written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_OPEN, _CLOSE = "([", ")]"
_OF_A_PAIR = re.compile(r"\w+\s*\(\s*(?:metadata|input|output|feedback)_")
_VALUES = re.compile(r"^(?P<call>eq|in)\((?P<field>\w+),(?P<value>.+)\)$", re.DOTALL)


def split(text: str) -> list[str]:
    """The clauses that an `and(…)` around everything joins; other text is one clause."""
    text = text.strip()
    if not text:
        return []
    inner = _inside_and(text)
    if inner is None:
        return [text]
    parts = [clause for part in inner for clause in [part.strip()] if clause]
    # Conditions on a key and its value belong together: alone they would say something else.
    return [text] if len(parts) > 1 and all(map(_OF_A_PAIR.match, parts)) else parts


def join(clauses: Sequence[str]) -> str:
    if len(clauses) < 2:
        return "".join(clauses)
    return f"and({', '.join(clauses)})"


def without(text: str, clause: str) -> str:
    """The text less every clause that says the same."""
    said = plain(clause)
    return join([kept for kept in split(text) if plain(kept) != said])


def toggled(text: str, clause: str) -> str:
    """The text without the clause when it has it, else with it at the end."""
    if has(text, clause):
        return without(text, clause)
    return join([*split(text), clause])


def has(text: str, clause: str) -> bool:
    said = plain(clause)
    return any(plain(kept) == said for kept in split(text))


def chosen(text: str, field: str) -> list[str]:
    """The values that `eq(field, …)` or `in(field, […])` lets through; none without either."""
    for clause in split(text):
        found = _VALUES.match(plain(clause))
        if found is None or found["field"] != field:
            continue
        try:
            value = json.loads(found["value"])
        except ValueError:
            continue
        values = value if isinstance(value, list) else [value]
        if all(isinstance(one, str) for one in values):
            return values
    return []


def toggled_value(text: str, field: str, value: str) -> str:
    """The text letting one value of the field more, or less, through."""
    values = chosen(text, field)
    kept = split(without_field(text, field))
    values = [one for one in values if one != value] if value in values else [*values, value]
    if values:
        kept.append(one_of(field, values))
    return join(kept)


def without_field(text: str, field: str) -> str:
    """The text without the clauses that let only some values of the field through."""
    return join([clause for clause in split(text) if not chosen(clause, field)])


def one_of(field: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"eq({field}, {quoted(values[0])})"
    return f"in({field}, [{', '.join(map(quoted, values))}])"


def quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(text: str) -> str:
    """The text without white space outside quotes: what two spellings have in common."""
    return "".join(
        piece if piece[:1] in ("'", '"') else re.sub(r"\s+", "", piece) for piece in _pieces(text)
    )


def _pieces(text: str) -> list[str]:
    """Quoted strings, and what is between them."""
    return re.findall(r'"(?:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\])*\'?|[^"\']+', text, re.DOTALL)


def _inside_and(text: str) -> list[str] | None:
    """The arguments of the `and(…)` that the whole text is; None when it is something else."""
    head = re.match(r"and\s*\(", text)
    if head is None:
        return None
    parts: list[str] = []
    depth, part = 1, ""
    pieces = _pieces(text[head.end() :])
    for number, piece in enumerate(pieces):
        if piece[:1] in ("'", '"'):
            part += piece
            continue
        for at, letter in enumerate(piece):
            depth += (letter in _OPEN) - (letter in _CLOSE)
            if depth == 0:
                is_last = number == len(pieces) - 1 and not piece[at + 1 :].strip()
                return [*parts, part] if is_last else None
            if letter == "," and depth == 1:
                parts.append(part)
                part = ""
            else:
                part += letter
    return None
