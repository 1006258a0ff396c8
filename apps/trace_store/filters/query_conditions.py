"""Builds the conditions of the query bar's clauses: a field with an operator and a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches

from apps.trace_store.errors import FilterError
from apps.trace_store.filters.builders import search_words
from apps.trace_store.filters.fields import BY_NAME
from apps.trace_store.filters.nodes import (
    And,
    AnyItem,
    Comparison,
    Condition,
    Expression,
    Or,
    Value,
)
from apps.trace_store.filters.query_fields import STATUS_WORDS, QueryField, QueryKind
from apps.trace_store.filters.query_times import TimeSpan, parse_time_span
from apps.trace_store.filters.query_values import (
    QueryValue,
    escape_pattern,
    parse_duration,
    parse_id,
    parse_number,
    query_error,
)
from apps.trace_store.filters.text_matching import split_words

_ORDERINGS = {
    ">": Comparison.GREATER,
    ">=": Comparison.GREATER_OR_EQUAL,
    "=>": Comparison.GREATER_OR_EQUAL,
    "<": Comparison.LESS,
    "<=": Comparison.LESS_OR_EQUAL,
    "=<": Comparison.LESS_OR_EQUAL,
}
_EXPECTED = {
    QueryKind.DURATION: "takes a duration, such as `2s` or `500ms`",
    QueryKind.NUMBER: "takes a number, such as `400` or `4k`",
    QueryKind.MONEY: "takes an amount in US dollars, such as `$0.01`",
    QueryKind.TIME: "takes a date, or how long ago, such as `2026-01-31` or `2h`",
    QueryKind.ID: "takes a whole id, such as `0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328`",
    QueryKind.BOOLEAN: "is `true` or `false`",
}
_MEANT_VALUES = {
    "failed": "error",
    "failure": "error",
    "errored": "error",
    "err": "error",
    "ok": "success",
    "done": "success",
    "succeeded": "success",
    "canceled": "cancelled",
    "waiting": "interrupted",
    "paused": "interrupted",
    "model": "llm",
    "agent": "chain",
}


@dataclass(frozen=True, slots=True)
class ConditionBuilder:
    """Builds the conditions of one query. Raises `FilterError` for a value that a field refuses."""

    text: str
    """Of the query, for the place of an error."""
    now: datetime
    """The time that `2h` and `today` refer to."""

    def _error(self, value: QueryValue, message: str, suggestion: str = "") -> FilterError:
        return query_error(self.text, value.start, value.end, message, suggestion)

    def build(self, query_field: QueryField, operator: str, value: QueryValue) -> Expression:
        """Build the condition of one field with one operator and value."""
        if value.is_presence and not operator:
            return _presence(query_field)
        kind = query_field.kind
        if operator == "~":
            return self._build_contains(query_field, value)
        if operator and not query_field.is_ordered:
            plain = f"{query_field.name}:{value.text}"
            raise self._error(
                value,
                f"`{query_field.name}` has no order. Write `{plain:.80}` or `{plain:.80}*`.",
            )
        if kind is QueryKind.CONTENT:
            return _wrap(
                query_field,
                Condition(query_field.field, Comparison.SEARCH, self.search_text(value)),
            )
        if query_field.is_ordered and not operator and ".." in value.text and not value.is_quoted:
            return self._build_range(query_field, value)
        if kind is QueryKind.TIME:
            return _wrap_time(query_field, operator, self._time(query_field, value, value.text))
        if operator:
            operand = self._operand(query_field, value, value.text, is_ordered=True)
            return _wrap(query_field, Condition(query_field.field, _ORDERINGS[operator], operand))
        if kind in {QueryKind.TEXT, QueryKind.MIXED} and value.has_wildcard:
            return _wrap(query_field, Condition(query_field.field, Comparison.ILIKE, value.pattern))
        return self._build_equal(query_field, value)

    def search_text(self, value: QueryValue) -> str:
        """The search text: quoted words are whole, other words are beginnings."""
        words = [
            " ".join(split_words(piece.text)) if piece.is_quoted else search_words(piece.text)
            for piece in value.pieces
        ]
        text = " ".join(filter(None, words))
        if not text:
            raise self._error(value, "A search needs at least one letter or digit.")
        return text

    def _build_equal(self, query_field: QueryField, value: QueryValue) -> Expression:
        is_score = query_field.field.name == "feedback_score"
        if is_score and value.text.lower() in {"true", "false"}:
            score = Decimal(value.text.lower() == "true")
            return _wrap(query_field, Condition(query_field.field, Comparison.EQUAL, score))
        if is_score and parse_number(value.text) is None:
            # A feedback without a number has a text.
            condition = Condition(BY_NAME["feedback_value"], Comparison.EQUAL, value.text)
            return _wrap(query_field, condition)
        operand = self._operand(query_field, value, value.text, is_ordered=False)
        return _wrap(query_field, Condition(query_field.field, Comparison.EQUAL, operand))

    def _build_contains(self, query_field: QueryField, value: QueryValue) -> Expression:
        run_field = query_field.field
        if query_field.kind is QueryKind.CONTENT or run_field.is_searched:
            words = " ".join(split_words(value.text.rstrip("*")))
            if not words:
                raise self._error(value, "`~` needs a word after it.")
            suffix = "*" if value.has_wildcard and value.text.endswith("*") else ""
            return _wrap(query_field, Condition(run_field, Comparison.SEARCH, words + suffix))
        if query_field.kind in {QueryKind.TEXT, QueryKind.MIXED}:
            pattern = f"%{escape_pattern(value.text)}%"
            return _wrap(query_field, Condition(run_field, Comparison.ILIKE, pattern))
        expected = _EXPECTED.get(query_field.kind, "has no words")
        raise self._error(value, f"`{query_field.name}` {expected}.")

    def _build_range(self, query_field: QueryField, value: QueryValue) -> Expression:
        low, _, high = value.text.partition("..")
        if not low and not high:
            raise self._error(value, "A range is `1s..5s`.")
        parts: list[Condition] = []
        if query_field.kind is QueryKind.TIME:
            if low:
                begin = self._time(query_field, value, low).begin
                parts.append(Condition(query_field.field, Comparison.GREATER_OR_EQUAL, begin))
            if high:
                span = self._time(query_field, value, high)
                is_span = span.end > span.begin
                comparison = Comparison.LESS if is_span else Comparison.LESS_OR_EQUAL
                parts.append(Condition(query_field.field, comparison, span.end))
            return _wrap(query_field, *parts)
        for text, comparison in (
            (low, Comparison.GREATER_OR_EQUAL),
            (high, Comparison.LESS_OR_EQUAL),
        ):
            if text:
                operand = self._operand(query_field, value, text, is_ordered=True)
                parts.append(Condition(query_field.field, comparison, operand))
        return _wrap(query_field, *parts)

    def _time(self, query_field: QueryField, value: QueryValue, text: str) -> TimeSpan:
        span = parse_time_span(text, self.now)
        if span is None:
            raise self._mistyped(query_field, value)
        return span

    def _operand(
        self, query_field: QueryField, value: QueryValue, text: str, *, is_ordered: bool
    ) -> Value:
        operand: Value | None
        match query_field.kind:
            case QueryKind.DURATION:
                operand = parse_duration(text)
            case QueryKind.NUMBER:
                operand = parse_number(text)
            case QueryKind.MONEY:
                operand = parse_number(text.strip().removeprefix("$"))
            case QueryKind.ID:
                operand = parse_id(text)
            case QueryKind.BOOLEAN:
                operand = {"true": True, "yes": True, "false": False, "no": False}.get(text.lower())
            case QueryKind.MIXED if is_ordered:
                number = parse_number(text)
                operand = text if number is None or value.is_quoted else number
            case _:
                operand = self._word(query_field, value, text)
        if operand is None:
            raise self._mistyped(query_field, value)
        return operand

    def _word(self, query_field: QueryField, value: QueryValue, text: str) -> str:
        if not query_field.field.is_word:
            return text
        word = text.lower()
        word = STATUS_WORDS.get(word, word) if query_field.name == "status" else word
        stored = {STATUS_WORDS.get(item, item) for item in query_field.values}
        if not query_field.values or word in stored:
            return word
        meant = _MEANT_VALUES.get(word) or next(
            iter(get_close_matches(word, query_field.values, n=1)), ""
        )
        known = f"{', '.join(query_field.values[:-1])} or {query_field.values[-1]}"
        hint = f" Did you mean `{meant}`?" if meant in query_field.values else ""
        raise self._error(
            value,
            f"`{query_field.name}` is {known}, not `{text:.60}`.{hint}",
            meant if hint else "",
        )

    def _mistyped(self, query_field: QueryField, value: QueryValue) -> FilterError:
        message = f"`{query_field.name}` {_EXPECTED[query_field.kind]}."
        return self._error(value, message)


def _presence(query_field: QueryField) -> Expression:
    if query_field.key_field is not None and query_field.field.name != "feedback_comment":
        return _wrap(query_field)
    return _wrap(query_field, Condition(query_field.field, Comparison.PRESENT))


def _wrap(query_field: QueryField, *conditions: Condition) -> Expression:
    """Build the conditions of one field; those of an item hold for the same item."""
    items = query_field.items
    if items is None:
        return conditions[0] if len(conditions) == 1 else And(conditions)
    return AnyItem(items, (*_key_conditions(query_field), *conditions))


def _key_conditions(query_field: QueryField) -> tuple[Condition, ...]:
    if query_field.key_field is None:
        return ()
    if len(query_field.keys) == 1:
        return (Condition(query_field.key_field, Comparison.EQUAL, query_field.keys[0]),)
    return (Condition(query_field.key_field, Comparison.AMONG, query_field.keys),)


def _wrap_time(query_field: QueryField, operator: str, span: TimeSpan) -> Expression:
    """Build a comparison with a span of time, such as a day, or with an instant."""
    run_field = query_field.field

    def condition(comparison: Comparison, value: datetime) -> Condition:
        return Condition(run_field, comparison, value)

    match operator:
        case ">":
            is_span = span.end > span.begin
            after = Comparison.GREATER_OR_EQUAL if is_span else Comparison.GREATER
            return _wrap(query_field, condition(after, span.end))
        case ">=" | "=>":
            return _wrap(query_field, condition(Comparison.GREATER_OR_EQUAL, span.begin))
        case "<":
            return _wrap(query_field, condition(Comparison.LESS, span.begin))
        case "<=" | "=<":
            until = Comparison.LESS if span.end > span.begin else Comparison.LESS_OR_EQUAL
            return _wrap(query_field, condition(until, span.end))
    since = condition(Comparison.GREATER_OR_EQUAL, span.begin)
    if span.is_ago:
        # `start:2h` means within the last two hours.
        return _wrap(query_field, since)
    if span.end > span.begin:
        return _wrap(query_field, since, condition(Comparison.LESS, span.end))
    return _wrap(query_field, condition(Comparison.EQUAL, span.begin))


def join_alternatives(alternatives: Sequence[Expression]) -> Expression:
    """Combine by `or`; equal comparisons of one field become one condition with a list."""
    if len(alternatives) == 1:
        return alternatives[0]
    leaves = [
        alternative.conditions[-1] if isinstance(alternative, AnyItem) else alternative
        for alternative in alternatives
    ]
    first = leaves[0]
    if isinstance(first, Condition) and all(
        isinstance(leaf, Condition)
        and leaf.comparison is Comparison.EQUAL
        and leaf.field == first.field
        for leaf in leaves
    ):
        values = tuple(leaf.value for leaf in leaves if isinstance(leaf, Condition))
        among = Condition(first.field, Comparison.AMONG, values)  # type: ignore[arg-type]
        head = alternatives[0]
        if not isinstance(head, AnyItem):
            return among
        return AnyItem(head.items, (*head.conditions[:-1], among))
    return Or(tuple(alternatives))
