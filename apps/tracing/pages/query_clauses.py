"""Edits the text of a query by clause, so that a click can add or remove one; locates faults.

Other clauses of the user's text stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils import timezone

from apps.trace_store.errors import FilterError
from apps.trace_store.filters.formatting import keyed_name, quote_query
from apps.trace_store.filters.nodes import And, Comparison, Condition, Expression
from apps.trace_store.filters.query_fields import (
    QUERY_FIELDS,
    QUERY_FIELDS_BY_NAME,
    STATUS_WORDS,
)
from apps.trace_store.filters.query_text import ParsedQuery, parse_query


@dataclass(frozen=True)
class QueryProblem:
    """An invalid query with the place of its fault and, if known, what was meant."""

    text: str
    fault: str
    suggestion: str = ""
    """The whole query with the fault replaced; empty if nothing close is known."""
    place: str = ""
    """Where the fault of a filter in the API's language is, in words."""
    field: str = "query"
    title: str = "query"


@dataclass(frozen=True)
class QueryClause:
    text: str
    expression: Expression


def parse(text: str) -> ParsedQuery:
    """Parse the query in the active time zone. Raises `FilterError`."""
    return parse_query(text, timezone.localtime())


def parse_error(text: str) -> FilterError | None:
    try:
        parse(text)
    except FilterError as error:
        return error
    return None


def locate_problem(error: FilterError, text: str) -> QueryProblem:
    details: dict[str, Any] = error.errors[0] if error.errors else {}
    if "start" not in details:  # a filter in the API's language, whose error names the column
        place = "line {line}, column {column}".format_map(details) if details else ""
        return QueryProblem(error.detail, "", place=place)
    start, end = int(details["start"]), int(details["end"])
    meant = str(details.get("suggestion", ""))
    fixed = text[:start] + meant + text[end:] if meant else ""
    return QueryProblem(error.detail, text[start:end], fixed if fixed != text else "")


def split_query(text: str) -> list[QueryClause]:
    """Return the clauses that a space joins; an invalid query has none."""
    try:
        query = parse(text)
    except FilterError:
        return []
    return [
        QueryClause(text[clause.start : clause.end], clause.expression) for clause in query.clauses
    ]


def join_queries(texts: Sequence[str]) -> str:
    """Join queries by a space; alternatives of several queries are put in parentheses."""
    present = [text.strip() for text in texts if text.strip()]
    if len(present) < 2:
        return "".join(present)
    return " ".join(map(group_query, present))


def group_query(text: str) -> str:
    """Return the query so that a clause can follow it: alternatives stand in parentheses."""
    return f"({text})" if _is_alternative(text) else text


def _is_alternative(text: str) -> bool:
    try:
        return parse(text).is_alternative
    except FilterError:
        return False


def remove_clause(text: str, clause: str) -> str:
    """Return the query without the clauses that mean the same as this one."""
    return " ".join(item.text for item in split_query(text) if not _is_same(item, clause))


def add_clause(text: str, clause: str) -> str:
    return text if has_clause(text, clause) else join_queries([text, clause])


def toggle_clause(text: str, clause: str) -> str:
    """Remove the clause from the query, or append it if absent."""
    return remove_clause(text, clause) if has_clause(text, clause) else add_clause(text, clause)


def has_clause(text: str, clause: str) -> bool:
    return any(_is_same(item, clause) for item in split_query(text))


def _is_same(item: QueryClause, clause: str) -> bool:
    try:
        return item.text == clause or item.expression == parse(clause).expression
    except FilterError:
        return False


def selected_values(text: str, name: str) -> list[str]:
    """Return the values of the clause `name:a` or `name:(a OR b)`; empty without one."""
    run_field = QUERY_FIELDS_BY_NAME[name].field
    for item in split_query(text):
        if (values := _values(item.expression, run_field.name)) is not None:
            return values
    return []


def _values(expression: Expression, name: str) -> list[str] | None:
    match expression:
        case Condition(field=field, comparison=Comparison.EQUAL, value=value):
            return [str(value)] if field.name == name else None
        case Condition(field=field, comparison=Comparison.AMONG, value=tuple() as values):
            return list(map(str, values)) if field.name == name else None
    return None


def toggle_value(text: str, name: str, value: str) -> str:
    """Add the stored value to the field's clause, or remove it if present."""
    values = selected_values(text, name)
    values = [item for item in values if item != value] if value in values else [*values, value]
    rest = remove_field(text, name)
    return join_queries([rest, build_clause(name, values)]) if values else rest


def remove_field(text: str, name: str) -> str:
    """Remove the clauses that restrict the field's values."""
    run_field = QUERY_FIELDS_BY_NAME[name].field
    return " ".join(
        item.text for item in split_query(text) if _values(item.expression, run_field.name) is None
    )


_BOUNDS = {
    Comparison.GREATER: 0,
    Comparison.GREATER_OR_EQUAL: 0,
    Comparison.LESS: 1,
    Comparison.LESS_OR_EQUAL: 1,
}


def number_limits(text: str, name: str) -> tuple[Decimal | None, Decimal | None] | None:
    """Return the lower and upper limit of the field's clause; None without one."""
    for item in split_query(text):
        if (limits := _limits(item.expression, name)) is not None:
            return limits
    return None


def remove_number(text: str, name: str) -> str:
    """Remove the clauses that limit the numeric field."""
    clauses = split_query(text)
    return " ".join(item.text for item in clauses if _limits(item.expression, name) is None)


def _limits(expression: Expression, name: str) -> tuple[Decimal | None, Decimal | None] | None:
    run_field = QUERY_FIELDS_BY_NAME[name].field
    parts = expression.parts if isinstance(expression, And) else (expression,)
    limits: list[Decimal | None] = [None, None]
    for part in parts:
        if not (
            isinstance(part, Condition)
            and part.field.name == run_field.name
            and part.comparison in _BOUNDS
            and isinstance(part.value, Decimal)
        ):
            return None
        limits[_BOUNDS[part.comparison]] = part.value
    return limits[0], limits[1]


_STATUS_WORDS = {stored: word for word, stored in STATUS_WORDS.items()}


def build_clause(name: str, values: Sequence[str]) -> str:
    """Return `name:a` or `name:(a OR b)` for stored values."""
    name = QUERY_FIELDS_BY_NAME[name].name
    words = [_STATUS_WORDS.get(item, item) if name == "status" else item for item in values]
    quoted = [quote_query(item) for item in words]
    return f"{name}:{quoted[0]}" if len(quoted) == 1 else f"{name}:({' OR '.join(quoted)})"


_FIELDS_OF_KEYS = {
    item.keys[0]: item.name for item in QUERY_FIELDS if item.name in {"deployment", "revision"}
}


def facet_clause(key: str, value: str) -> str:
    """Return the clause of a facet such as `tag`, `feedback_key` or `metadata.plan`."""
    if key == "feedback_key":
        return f"{keyed_name('feedback', value)}:*"
    group, _, inner = key.partition(".")
    if not inner:
        return build_clause(key, [value])
    if inner in _FIELDS_OF_KEYS:
        return f"{_FIELDS_OF_KEYS[inner]}:{quote_query(value)}"
    return f"{keyed_name(group, inner)}:{quote_query(value)}"


def language() -> dict[str, Any]:
    """Return the fields for `<query-bar>`, which checks a query and suggests its parts."""
    return {
        "fields": [
            {
                "name": item.name,
                "kind": str(item.kind),
                "example": item.example,
                "about": item.about,
                "values": item.values,
            }
            for item in QUERY_FIELDS
        ],
        "others": sorted(set(QUERY_FIELDS_BY_NAME) - {item.name for item in QUERY_FIELDS}),
    }
