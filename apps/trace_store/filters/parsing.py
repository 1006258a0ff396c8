"""Builds the filter tree from parsed calls: resolves fields, comparisons and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from apps.trace_store.filters import fields, literals
from apps.trace_store.filters.fields import Field, FieldType, ItemKind
from apps.trace_store.filters.nodes import (
    And,
    AnyItem,
    Comparison,
    Condition,
    Expression,
    Not,
    Or,
    Value,
)
from apps.trace_store.filters.syntax import (
    Argument,
    Call,
    ListLiteral,
    Name,
    Number,
    String,
    parse_calls,
)

MAX_CONDITIONS = 200
"""Limit per filter, because each condition costs planning time."""

_NEGATIVE = {"neq", "nlike", "not_like", "is_null"}
_COMPARISONS = {
    "eq": Comparison.EQUAL,
    "neq": Comparison.EQUAL,
    "gt": Comparison.GREATER,
    "gte": Comparison.GREATER_OR_EQUAL,
    "lt": Comparison.LESS,
    "lte": Comparison.LESS_OR_EQUAL,
    "in": Comparison.AMONG,
    "like": Comparison.LIKE,
    "ilike": Comparison.ILIKE,
    "nlike": Comparison.LIKE,
    "not_like": Comparison.LIKE,
    "is_null": Comparison.PRESENT,
    "is_not_null": Comparison.PRESENT,
    "has": Comparison.CONTAINS,
    "exists": Comparison.EXISTS,
    "search": Comparison.SEARCH,
}
_COMBINATORS = ("and", "or", "not")
_SUGGESTIONS = {
    "equals": "eq",
    "ne": "neq",
    "ge": "gte",
    "le": "lte",
    "contains": "like",
    "matches": "search",
    "nin": "not(in(...))",
    "not_in": "not(in(...))",
}
"""Operators of other languages, for error messages."""


def parse(text: str, known: Mapping[str, Field] = fields.BY_NAME) -> Expression:
    """Parse a filter. Raises `FilterError` with line and column if it is invalid.

    `known` maps names and aliases to fields.
    """
    return _Parser(known).expression(parse_calls(text))


def parse_thread_filter(text: str) -> Expression:
    """Parse a filter on the fields of whole threads. Raises `FilterError` like `parse`."""
    return parse(text, fields.THREAD_FIELDS_BY_NAME)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A condition and whether it is negated."""

    condition: Condition
    is_negative: bool


@dataclass(slots=True)
class _Parser:
    known: Mapping[str, Field]
    conditions: int = field(default=0)

    def expression(self, call: Call) -> Expression:
        if call.name in {"and", "or"} and not call.arguments:
            raise call.place.error(f"`{call.name}` takes one condition or more")
        if call.name == "and":
            return _combine([self._part(argument) for argument in call.arguments])
        if call.name == "or":
            parts = tuple(self._whole(argument) for argument in call.arguments)
            return parts[0] if len(parts) == 1 else Or(parts)
        if call.name == "not":
            if len(call.arguments) != 1:
                raise call.place.error("`not` takes one condition")
            return Not(self._whole(call.arguments[0]))
        return _combine([self._leaf(call)])

    def _whole(self, argument: Argument) -> Expression:
        return _combine([self._part(argument)])

    def _part(self, argument: Argument) -> Expression | _Leaf:
        if not isinstance(argument, Call):
            raise argument.place.error('a condition is due here, such as `eq(name, "agent")`')
        return self.expression(argument) if argument.name in _COMBINATORS else self._leaf(argument)

    def _leaf(self, call: Call) -> _Leaf:
        comparison = _COMPARISONS.get(call.name)
        if comparison is None:
            known = (*_COMPARISONS, *_COMBINATORS)
            raise call.place.error(f"there is no `{call.name}`{_suggestion(call.name, known)}")
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise call.place.error(f"a filter may have {MAX_CONDITIONS} conditions")
        if comparison is Comparison.SEARCH and len(call.arguments) == 1:
            text = literals.parse_search_text(_literal(call.arguments[0]))
            return _Leaf(Condition(fields.ALL_CONTENT, comparison, text), is_negative=False)
        if not call.arguments:
            raise call.place.error(f"`{call.name}` says no field")
        result = self._field(call.arguments[0])
        _check_operator(call, result)
        return _condition(call, result, comparison, call.arguments[1:])

    def _field(self, argument: Argument) -> Field:
        if not isinstance(argument, Name | String):
            raise argument.place.error("the name of a field is due here")
        result = self.known.get(argument.text)
        if result is None:
            meant = _suggestion(argument.text, list(self.known))
            raise argument.place.error(f"there is no field `{argument.text:.60}`{meant}")
        return result


def _combine(parts: Sequence[Expression | _Leaf]) -> Expression:
    """Combine the parts by `and`; conditions on one kind of item form one `AnyItem`."""
    together: list[Expression] = []
    grouped: dict[ItemKind, list[_Leaf]] = {}
    for part in parts:
        if not isinstance(part, _Leaf):
            together.append(part)
        elif part.condition.field.items is None:
            together.append(Not(part.condition) if part.is_negative else part.condition)
        else:
            grouped.setdefault(part.condition.field.items, []).append(part)
    for items, leaves in grouped.items():
        met = tuple(leave.condition for leave in leaves if not leave.is_negative)
        not_met = tuple(leave.condition for leave in leaves if leave.is_negative)
        if met:
            together.append(AnyItem(items, met, not_met))
        else:
            # Only negative conditions: no item may match any of them.
            together += [Not(AnyItem(items, (leave,))) for leave in not_met]
    return together[0] if len(together) == 1 else And(tuple(together))


def _suggestion(written: str, known: Sequence[str]) -> str:
    word = written[:60].lower()
    close = [_SUGGESTIONS[word]] if word in _SUGGESTIONS else get_close_matches(word, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _check_operator(call: Call, field: Field) -> None:
    taken = fields.OPERATORS[field.kind]
    if call.name in taken or (call.name == "search" and field.is_searched):
        return
    taken += ("search",) if field.is_searched else ()
    raise call.place.error(
        f"`{field.name}` is {field.kind} and does not take `{call.name}`, but {', '.join(taken)}"
    )


def _condition(
    call: Call, field: Field, comparison: Comparison, arguments: Sequence[Argument]
) -> _Leaf:
    is_negative = call.name in _NEGATIVE
    if comparison is Comparison.PRESENT:
        if arguments:
            raise arguments[0].place.error(f"`{call.name}` takes nothing but the field")
        return _Leaf(Condition(field, comparison), is_negative)
    if len(arguments) != 1:
        what = "a list" if comparison is Comparison.AMONG else "one value"
        raise call.place.error(f"`{call.name}` takes a field and {what}")
    argument = arguments[0]
    if comparison is Comparison.AMONG:
        written = argument.values if isinstance(argument, ListLiteral) else (argument,)
        values = tuple(_value(field, comparison, item) for item in written)
        return _Leaf(Condition(field, comparison, values), is_negative)
    if comparison is Comparison.EQUAL and literals.is_null(argument):
        # `eq(x, null)` is the negation of presence, and `neq(x, null)` is presence.
        return _Leaf(Condition(field, Comparison.PRESENT), not is_negative)
    if field.kind is FieldType.TEXTS and comparison is Comparison.CONTAINS:
        comparison = Comparison.EQUAL
    return _Leaf(Condition(field, comparison, _value(field, comparison, argument)), is_negative)


def _literal(argument: Argument) -> Name | Number | String:
    if isinstance(argument, Call | ListLiteral):
        what = "condition" if isinstance(argument, Call) else "list"
        raise argument.place.error(f"a value is due here, not a {what}")
    return argument


def _value(field: Field, comparison: Comparison, argument: Argument) -> Value:
    literal = _literal(argument)
    if literals.is_null(literal):
        raise literal.place.error("null is only equal or not equal: use `is_null` or `eq`")
    if isinstance(literal, Name) and not literals.is_boolean(literal):
        raise literal.place.error(
            f'`{literal.text:.60}` is no value; a text stands in quotes: "{literal.text:.60}"'
        )
    match comparison:
        case Comparison.SEARCH:
            return literals.parse_search_text(literal)
        case Comparison.CONTAINS:
            return literals.parse_json_object(literal)
        case Comparison.EXISTS:
            return literals.parse_text(literal)
        case Comparison.LIKE | Comparison.ILIKE:
            return literals.parse_pattern(literal)
    is_ordered = comparison not in {Comparison.EQUAL, Comparison.AMONG}
    if field.is_json and is_ordered and isinstance(literal, Number):
        return literals.parse_number(literal)
    if field.is_word:
        return literals.parse_text(literal).lower()
    return _READERS[field.kind](literal)


_READERS: dict[FieldType, Callable[[literals.Literal], Value]] = {
    FieldType.UUID: literals.parse_uuid,
    FieldType.TEXT: literals.parse_text,
    FieldType.TEXTS: literals.parse_text,
    FieldType.NUMBER: literals.parse_number,
    FieldType.SECONDS: literals.parse_seconds,
    FieldType.TIME: literals.parse_time,
    FieldType.BOOLEAN: literals.parse_boolean,
}
