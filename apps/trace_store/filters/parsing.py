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


def parse(text: str, fields_by_name: Mapping[str, Field] = fields.BY_NAME) -> Expression:
    """Parse a filter. Raises `FilterError` with line and column if it is invalid.

    `fields_by_name` maps names and aliases to fields.
    """
    return _Parser(fields_by_name).build_expression(parse_calls(text))


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
    fields_by_name: Mapping[str, Field]
    conditions: int = field(default=0)

    def build_expression(self, call: Call) -> Expression:
        if call.name in {"and", "or"} and not call.arguments:
            raise call.position.error(f"`{call.name}` takes one condition or more.")
        if call.name == "and":
            return _combine([self._parse_part(argument) for argument in call.arguments])
        if call.name == "or":
            parts = tuple(self._parse_operand(argument) for argument in call.arguments)
            return parts[0] if len(parts) == 1 else Or(parts)
        if call.name == "not":
            if len(call.arguments) != 1:
                raise call.position.error("`not` takes one condition.")
            return Not(self._parse_operand(call.arguments[0]))
        return _combine([self._parse_leaf(call)])

    def _parse_operand(self, argument: Argument) -> Expression:
        return _combine([self._parse_part(argument)])

    def _parse_part(self, argument: Argument) -> Expression | _Leaf:
        if not isinstance(argument, Call):
            raise argument.position.error('Write a condition here, such as `eq(name, "agent")`.')
        return (
            self.build_expression(argument)
            if argument.name in _COMBINATORS
            else self._parse_leaf(argument)
        )

    def _parse_leaf(self, call: Call) -> _Leaf:
        comparison = _COMPARISONS.get(call.name)
        if comparison is None:
            names = (*_COMPARISONS, *_COMBINATORS)
            raise call.position.error(
                f"There is no function `{call.name}`.{_suggestion(call.name, names)}"
            )
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise call.position.error(f"A filter has at most {MAX_CONDITIONS} conditions.")
        if comparison is Comparison.SEARCH and len(call.arguments) == 1:
            text = literals.parse_search_text(_require_literal(call.arguments[0]))
            return _Leaf(Condition(fields.ALL_CONTENT, comparison, text), is_negative=False)
        if not call.arguments:
            raise call.position.error(f"`{call.name}` needs a field as its first argument.")
        field = self._find_field(call.arguments[0])
        _check_operator(call, field)
        return _build_leaf(call, field, comparison, call.arguments[1:])

    def _find_field(self, argument: Argument) -> Field:
        if not isinstance(argument, Name | String):
            raise argument.position.error("Write the name of a field here, such as `name`.")
        field = self.fields_by_name.get(argument.text)
        if field is None:
            suggestion = _suggestion(argument.text, list(self.fields_by_name))
            raise argument.position.error(f"There is no field `{argument.text:.60}`.{suggestion}")
        return field


def _combine(parts: Sequence[Expression | _Leaf]) -> Expression:
    """Combine the parts by `and`; conditions on one kind of item form one `AnyItem`."""
    operands: list[Expression] = []
    leaves_by_kind: dict[ItemKind, list[_Leaf]] = {}
    for part in parts:
        if not isinstance(part, _Leaf):
            operands.append(part)
        elif part.condition.field.items is None:
            operands.append(Not(part.condition) if part.is_negative else part.condition)
        else:
            leaves_by_kind.setdefault(part.condition.field.items, []).append(part)
    for items, leaves in leaves_by_kind.items():
        positive = tuple(leaf.condition for leaf in leaves if not leaf.is_negative)
        negative = tuple(leaf.condition for leaf in leaves if leaf.is_negative)
        if positive:
            operands.append(AnyItem(items, positive, negative))
        else:
            # Only negative conditions: no item may match any of them.
            operands += [Not(AnyItem(items, (condition,))) for condition in negative]
    return operands[0] if len(operands) == 1 else And(tuple(operands))


def _suggestion(name: str, candidates: Sequence[str]) -> str:
    word = name[:60].lower()
    matches = (
        [_SUGGESTIONS[word]] if word in _SUGGESTIONS else get_close_matches(word, candidates, n=1)
    )
    return f" Did you mean `{matches[0]}`?" if matches else ""


def _check_operator(call: Call, field: Field) -> None:
    supported = fields.OPERATORS[field.kind]
    if call.name in supported or (call.name == "search" and field.is_searched):
        return
    supported += ("search",) if field.is_searched else ()
    raise call.position.error(
        f"`{field.name}` is {field.kind} and does not support `{call.name}`."
        f" It supports {', '.join(supported[:-1])} and {supported[-1]}."
    )


def _build_leaf(
    call: Call, field: Field, comparison: Comparison, arguments: Sequence[Argument]
) -> _Leaf:
    is_negative = call.name in _NEGATIVE
    if comparison is Comparison.PRESENT:
        if arguments:
            raise arguments[0].position.error(f"`{call.name}` takes only a field.")
        return _Leaf(Condition(field, comparison), is_negative)
    if len(arguments) != 1:
        operand = "a list" if comparison is Comparison.AMONG else "one value"
        raise call.position.error(f"`{call.name}` takes a field and {operand}.")
    argument = arguments[0]
    if comparison is Comparison.AMONG:
        items = argument.values if isinstance(argument, ListLiteral) else (argument,)
        values = tuple(_parse_value(field, comparison, item) for item in items)
        return _Leaf(Condition(field, comparison, values), is_negative)
    if comparison is Comparison.EQUAL and literals.is_null(argument):
        # `eq(x, null)` is the negation of presence, and `neq(x, null)` is presence.
        return _Leaf(Condition(field, Comparison.PRESENT), not is_negative)
    if field.kind is FieldType.TEXTS and comparison is Comparison.CONTAINS:
        comparison = Comparison.EQUAL
    return _Leaf(
        Condition(field, comparison, _parse_value(field, comparison, argument)), is_negative
    )


def _require_literal(argument: Argument) -> Name | Number | String:
    if isinstance(argument, Call | ListLiteral):
        kind = "condition" if isinstance(argument, Call) else "list"
        raise argument.position.error(f"Write one value here, not a {kind}.")
    return argument


def _parse_value(field: Field, comparison: Comparison, argument: Argument) -> Value:
    literal = _require_literal(argument)
    if literals.is_null(literal):
        raise literal.position.error(
            "`null` has no order and is in no list. Use `eq`, `neq` or `is_null`."
        )
    if isinstance(literal, Name) and not literals.is_boolean(literal):
        raise literal.position.error(
            f'`{literal.text:.60}` needs quotes. Write `"{literal.text:.60}"`.'
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
    return _PARSERS[field.kind](literal)


_PARSERS: dict[FieldType, Callable[[literals.Literal], Value]] = {
    FieldType.UUID: literals.parse_uuid,
    FieldType.TEXT: literals.parse_text,
    FieldType.TEXTS: literals.parse_text,
    FieldType.NUMBER: literals.parse_number,
    FieldType.SECONDS: literals.parse_seconds,
    FieldType.TIME: literals.parse_time,
    FieldType.BOOLEAN: literals.parse_boolean,
}
