"""The form that adds one condition to a filter: its fields, operators and the clause they make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from apps.tracing.pages import filter_clauses, periods
from apps.tracing.pages.filter_clauses import quote_value

IS, ORDER, EMPTY = ("eq", "neq"), ("gt", "gte", "lt", "lte"), ("is_not_null", "is_null")

OPERATOR_LABELS = {
    "has": "is",
    "eq": "is",
    "neq": "is not",
    "contains": "contains",
    "gt": "is greater than",
    "gte": "is at least",
    "lt": "is less than",
    "lte": "is at most",
    "is_not_null": "exists",
    "is_null": "is missing",
}


@dataclass(frozen=True)
class BuilderField:
    """A field of the form. Fields with a key, such as metadata, compare the value of that key."""

    name: str
    label: str
    operators: tuple[str, ...]
    hint: str = ""
    is_number: bool = False
    is_time: bool = False
    """Whether the value is a time in the user's zone, unless it names another one."""
    key_field: str = ""


_NUMBER_TEXT = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)
_TEXT = (*IS, "contains", *EMPTY)
_NUMBER = (*ORDER, *IS)

FIELDS: dict[str, BuilderField] = {
    field.name: field
    for field in (
        BuilderField("status", "Status", IS, "error"),
        BuilderField("name", "Name", _TEXT),
        BuilderField("run_type", "Type", IS, "llm"),
        BuilderField("latency", "Latency", _NUMBER, "2s, 750ms, 1m30s"),
        BuilderField("first_token_latency", "Time to first token", _NUMBER, "500ms"),
        BuilderField("total_tokens", "Total tokens", _NUMBER, "1000", is_number=True),
        BuilderField("prompt_tokens", "Input tokens", _NUMBER, "1000", is_number=True),
        BuilderField("completion_tokens", "Output tokens", _NUMBER, "1000", is_number=True),
        BuilderField("total_cost", "Cost in US dollars", _NUMBER, "0.05", is_number=True),
        BuilderField("start_time", "Start time", ORDER, "2026-01-31 12:00", is_time=True),
        BuilderField("tags", "Tag", ("has",)),
        BuilderField("error", "Error", ("contains", *EMPTY)),
        BuilderField("model", "Model", _TEXT),
        BuilderField("thread_id", "Thread", IS),
        BuilderField("metadata_value", "Metadata", IS, key_field="metadata_key"),
        BuilderField(
            "feedback_score",
            "Feedback score",
            _NUMBER,
            "1",
            is_number=True,
            key_field="feedback_key",
        ),
    )
}


def build_condition(params: Mapping[str, str]) -> str:
    """Return the clause of the submitted form, or an empty text if the form is incomplete.

    The value is not checked: the list shows what is wrong with the clause, as for typed filters.
    """
    field = FIELDS.get(params.get("field", ""))
    operator, value = params.get("operator", ""), params.get("value", "").strip()
    if field is None:
        return ""
    if operator not in field.operators:
        operator = field.operators[0]
    if operator in EMPTY:
        return f"{operator}({field.name})"
    if not value:
        return ""
    if operator == "contains":
        return f"ilike({field.name}, {quote_value(f'%{_escape_pattern(value)}%')})"
    if field.is_time and (time := periods.parse_time(value)):
        value = periods.format_time(time)
    literal = value if field.is_number and _NUMBER_TEXT.fullmatch(value) else quote_value(value)
    clause = f"{operator}({field.name}, {literal})"
    if not field.key_field:
        return clause
    key = params.get("key", "").strip()
    return f"and(eq({field.key_field}, {quote_value(key)}), {clause})" if key else ""


def add_condition(text: str, params: Mapping[str, str]) -> str:
    """Return the filter with the condition of the submitted form."""
    clause = build_condition(params)
    if not clause or filter_clauses.has_clause(text, clause):
        return text
    return filter_clauses.join_clauses([*filter_clauses.split_clauses(text), clause])


def _escape_pattern(value: str) -> str:
    return value.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
