"""Formats filter trees: as the API's function language, and as the query bar's language."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from apps.trace_store.filters.builders import quote, search_words
from apps.trace_store.filters.fields import Field, FieldType, ItemKind
from apps.trace_store.filters.nodes import (
    And,
    AnyItem,
    Comparison,
    Condition,
    Expression,
    JsonObject,
    Not,
    Or,
    Values,
)
from apps.trace_store.filters.query_fields import (
    COMMENT_SUFFIX,
    QUERY_FIELDS,
    QUERY_FIELDS_BY_NAME,
    STATUS_WORDS,
)
from apps.trace_store.filters.text_matching import parse_search, split_words

_NEGATED = {
    Comparison.EQUAL: "neq",
    Comparison.LIKE: "nlike",
    Comparison.PRESENT: "is_null",
}


def format_filter(expression: Expression) -> str:
    """Format the filter in the API's function language, from which `parse` builds it again."""
    match expression:
        case And(parts):
            return f"and({', '.join(map(format_filter, parts))})"
        case Or(parts):
            return f"or({', '.join(map(format_filter, parts))})"
        case Not(part):
            return f"not({format_filter(part)})"
        case AnyItem(_, conditions, but_not):
            # The call keeps the conditions apart from those of another item.
            positive = [_format_condition(condition) for condition in conditions]
            negative = [_format_condition(condition, is_negated=True) for condition in but_not]
            return f"and({', '.join([*positive, *negative])})"
        case Condition():
            return _format_condition(expression)


def _format_condition(condition: Condition, *, is_negated: bool = False) -> str:
    name, comparison = condition.field.name, condition.comparison
    call = _NEGATED[comparison] if is_negated else str(comparison)
    if comparison is Comparison.PRESENT:
        return f"{call}({name})"
    if comparison is Comparison.SEARCH and not name:
        return f"search({_literal(condition.value)})"
    return f"{call}({name}, {_literal(condition.value)})"


def _literal(value: Values) -> str:
    match value:
        case tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return str(value)
        case datetime():
            return quote(value.isoformat())
        case JsonObject(text):
            return json.dumps(text)
    return quote(str(value))


class _Untranslatable(Exception):
    """The query bar's language has no form for a part of the filter."""


def format_query(expression: Expression) -> str | None:
    """Format the filter in the query bar's language; None if it has no form for a part of it."""
    try:
        return _format(expression)
    except _Untranslatable:
        return None


def _format(expression: Expression) -> str:
    match expression:
        case And(parts):
            return " ".join(_format_part(part) for part in parts)
        case Or(parts):
            return " OR ".join(_format_part(part) for part in parts)
        case Not(Condition(field=field, value=bool() as value)) if field.name == "is_root":
            return f"root:{'false' if value else 'true'}"
        case Not(part):
            return f"-{_format_part(part)}"
        case AnyItem():
            return _format_item(expression)
        case Condition():
            return _format_field(_field_name(expression.field), expression)


def _format_part(expression: Expression) -> str:
    text = _format(expression)
    is_group = isinstance(expression, And | Or) or (
        isinstance(expression, Condition) and not expression.field.name and " " in text
    )
    return f"({text})" if is_group else text


def _field_name(field: Field) -> str:
    name = _NAMES.get(field.name)
    if name is None and field.name:
        raise _Untranslatable
    return name or ""


_NAMES = {item.field.name: item.name for item in QUERY_FIELDS if not item.keys} | {
    name: name
    for name, item in QUERY_FIELDS_BY_NAME.items()
    if item.name == name and item.field.name == name
}
_KEY_FIELDS = {
    ItemKind.METADATA: ("metadata", "metadata_key", "metadata_value"),
    ItemKind.INPUTS: ("input", "input_key", "input_value"),
    ItemKind.OUTPUTS: ("output", "output_key", "output_value"),
    ItemKind.FEEDBACK: ("feedback", "feedback_key", "feedback_score"),
}
_KEY_NAMES = {item.keys: item.name for item in QUERY_FIELDS if item.keys}


def _format_item(item: AnyItem) -> str:
    group, key_name, value_name = _KEY_FIELDS[item.items]
    if item.but_not or not 1 <= len(item.conditions) <= 2:
        raise _Untranslatable
    key, *others = item.conditions
    if key.field.name != key_name:
        if others or item.items is not ItemKind.FEEDBACK:
            raise _Untranslatable
        return _format_field(_field_name(key.field), key)
    keys = key.value if isinstance(key.value, tuple) else (key.value,)
    if key.comparison not in {Comparison.EQUAL, Comparison.AMONG}:
        raise _Untranslatable
    name = _KEY_NAMES.get(tuple(map(str, keys)))
    if name is None:
        if len(keys) != 1 or not keys[0]:
            raise _Untranslatable
        name = keyed_name(group, str(keys[0]))
    if group == "feedback" and name.endswith(COMMENT_SUFFIX):
        raise _Untranslatable
    if not others:
        return f"{name}:*"
    condition = others[0]
    if group == "feedback" and condition.field.name == "feedback_comment":
        return _format_field(f"{name}{COMMENT_SUFFIX}", condition)
    text = str(condition.value)
    is_text_score = (
        condition.field.name == "feedback_value"
        and condition.comparison is Comparison.EQUAL
        and not _is_number(text)
        and text.lower() not in {"true", "false"}
    )
    if condition.field.name != value_name and not is_text_score:
        raise _Untranslatable
    if condition.comparison is Comparison.PRESENT:
        raise _Untranslatable
    return _format_field(name, condition)


def _format_field(name: str, condition: Condition) -> str:
    comparison, value = condition.comparison, condition.value
    prefix = f"{name}:" if name else ""
    match comparison:
        case Comparison.PRESENT:
            return f"{prefix}*"
        case Comparison.EQUAL if condition.field.kind is FieldType.TIME:
            raise _Untranslatable
        case Comparison.EQUAL:
            return prefix + _format_value(condition.field, value)
        case Comparison.AMONG if isinstance(value, tuple) and value:
            values = [_format_value(condition.field, item) for item in value]
            return f"{prefix}({' OR '.join(values)})" if len(values) > 1 else prefix + values[0]
        case Comparison.SEARCH if condition.field.kind is FieldType.TEXT and name == "name":
            return _format_contained(prefix, str(value))
        case Comparison.SEARCH:
            return _format_search(prefix, str(value))
        case Comparison.ILIKE:
            return prefix + _format_pattern(str(value))
        case _ if comparison in _SIGNS:
            if condition.field.kind is FieldType.TEXT and not condition.field.is_json:
                raise _Untranslatable
            return prefix + _SIGNS[comparison] + _format_value(condition.field, value)
    raise _Untranslatable


_SIGNS = {
    Comparison.GREATER: ">",
    Comparison.GREATER_OR_EQUAL: ">=",
    Comparison.LESS: "<",
    Comparison.LESS_OR_EQUAL: "<=",
}


def _format_value(field: Field, value: Values) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Decimal():
            if field.kind is FieldType.SECONDS:
                return _format_seconds(value)
            plain = format(value, "f")
            return f"${plain}" if field.name.endswith("_cost") else plain
        case datetime():
            text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
            return f'"{text}Z"'
        case UUID():
            return str(value)
        case str() if field.is_word:
            word = _WORDS.get(value, value)
            if word not in QUERY_FIELDS_BY_NAME[field.name].values:
                raise _Untranslatable
            return word
        case str():
            # Quotes keep a text of digits from being compared as a number.
            is_digits = field.is_json and _is_number(value)
            return f'"{value}"' if is_digits else quote_query(value)
    raise _Untranslatable


_WORDS = {stored: word for word, stored in STATUS_WORDS.items()}


def _format_seconds(value: Decimal) -> str:
    if value < 0:
        return f"{value:f}"
    if value and value < 1 and value * 1000 == int(value * 1000):
        return f"{int(value * 1000)}ms"
    return f"{value:f}s"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[\d.,_]+[kmb]?", text.lower()) is not None


def _format_search(prefix: str, text: str) -> str:
    searched = parse_search(text)
    distinct = list(dict.fromkeys(split_words(text)))
    tokens = [
        *(word for word in distinct if word in searched.words and word not in searched.prefixes),
        *(f"{word}*" for word in distinct if word in searched.prefixes),
    ]
    # An unquoted word searches for its beginning if it is long enough for the index.
    words: list[str] = []
    for token in tokens:
        word = token.removesuffix("*")
        is_plain = token in {search_words(word), search_words(token)}
        words.append((word if search_words(word) == token else token) if is_plain else f'"{word}"')
    if not words:
        raise _Untranslatable
    if len(searched.prefixes) == 0 and len(words) > 1:
        return f'{prefix}"{" ".join(distinct)}"'
    if prefix and len(words) > 1:
        return f"{prefix}({' '.join(words)})"
    return prefix + " ".join(words)


def _format_contained(prefix: str, text: str) -> str:
    """Format a search of a field whose plain values are whole: each word after `~`."""
    searched = parse_search(text)
    clauses = [f"{prefix}~{word}" for word in dict.fromkeys(split_words(text))]
    clauses = [
        f"{clause}*" if clause.partition("~")[2] in searched.prefixes else clause
        for clause in clauses
    ]
    if not clauses:
        raise _Untranslatable
    return clauses[0] if len(clauses) == 1 else f"({' '.join(clauses)})"


def _format_pattern(pattern: str) -> str:
    """Format a pattern of `ilike` with `*` for `%`; `_` has no form."""
    parts: list[str] = []
    for piece in re.findall(r"\\.|%|_|[^\\%_]+", pattern, re.DOTALL):
        if piece == "_":
            raise _Untranslatable
        if piece == "%":
            parts.append("*")
        else:
            text = piece[1:] if piece[0] == "\\" else piece
            parts.append(_quote_text(text) if _needs_quotes(text) else text)
    if "*" not in parts:
        raise _Untranslatable
    result = "".join(parts)
    if result == "*" or result.startswith((">", "<", "=", "!", "~", "[")):
        raise _Untranslatable
    return result


def quote_query(value: str) -> str:
    """Format a text as a value of the query bar's language, in quotes where they are needed."""
    starts_as_operator = value.startswith((">", "<", "=", "!", "~", "["))
    if not value or starts_as_operator or _needs_quotes(value) or ".." in value:
        return _quote_text(value)
    return value


def _needs_quotes(text: str) -> bool:
    is_keyword = text in {"OR", "AND", "NOT"} or text.startswith(("||", "&&"))
    return is_keyword or re.search(r'[\s()"*\\:]', text) is not None


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quote_key(key: str) -> str:
    """Format a path of keys; a part with other characters stands in quotes."""
    parts = key.split(".")
    return ".".join(
        part if re.fullmatch(r"[\w$@/-]+", part) else _quote_text(part) for part in parts
    )


def keyed_name(group: str, key: str) -> str:
    """Format the field of a key, such as `metadata.plan`."""
    return f"{group}.{_quote_key(key)}"


def translate(expression: Expression) -> tuple[str, Sequence[Expression]]:
    """Translate a conjunction; returns the query and the parts that it has no form for."""
    parts = expression.parts if isinstance(expression, And) else (expression,)
    translated: list[str] = []
    remaining: list[Expression] = []
    for part in parts:
        text = format_query(part)
        if text is None:
            remaining.append(part)
        else:
            translated.append(f"({text})" if isinstance(part, Or) else text)
    return " ".join(translated), remaining
