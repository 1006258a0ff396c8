"""Parses the query bar's language, `field:value` clauses, to the filter tree of `parsing`.

`status:error latency:>2s -env:dev tag:(billing OR urgent) "card expired"`: a space means AND, words
without a field search all content by their beginnings. Each error is a sentence with the position
of the clause and, where a name is close, the name that was probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from uuid import UUID

from apps.trace_store.errors import FilterError
from apps.trace_store.filters import literals
from apps.trace_store.filters.builders import search_words
from apps.trace_store.filters.fields import ALL_CONTENT, BY_NAME
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
from apps.trace_store.filters.parsing import MAX_CONDITIONS
from apps.trace_store.filters.query_fields import (
    KEYED_FIELDS,
    QUERY_FIELDS_BY_NAME,
    STATUS_WORDS,
    QueryField,
    QueryKind,
    keyed_field,
)
from apps.trace_store.filters.query_times import TimeSpan, parse_time_span
from apps.trace_store.filters.syntax import UNSTORABLE, SourcePosition, String
from apps.trace_store.filters.text_matching import split_words

MAX_QUERY_LENGTH = 8_000
MAX_QUERY_DEPTH = 30
"""Maximum nesting of parentheses and negations."""

_FIELD = re.compile(r'(?P<name>[A-Za-z_][\w-]*)(?P<path>(?:\.(?:[\w$@/-]+|"(?:[^"\\]|\\.)*"))*):')
_PATH_PART = re.compile(r'\.(?:(?P<plain>[\w$@/-]+)|"(?P<quoted>(?:[^"\\]|\\.)*)")')
_OPERATOR = re.compile(r">=|<=|=>|=<|>|<|!=|=|~")
_MISSING_COLON = re.compile(
    r'(?P<name>[A-Za-z_.]+)(?P<operator>>=|<=|!=|>|<|=)(?P<value>[^\s()"]+)'
)
_SPACE = re.compile(r"\s+")
_UNQUOTED = re.compile(r'[^\s()"]+')
_QUOTED = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"', re.DOTALL)
_KEYWORD = re.compile(r"(?:OR|AND|NOT)(?=[\s(]|$)|\|\||&&")
_ORDERINGS = {
    ">": Comparison.GREATER,
    ">=": Comparison.GREATER_OR_EQUAL,
    "=>": Comparison.GREATER_OR_EQUAL,
    "<": Comparison.LESS,
    "<=": Comparison.LESS_OR_EQUAL,
    "=<": Comparison.LESS_OR_EQUAL,
}
_NUMBER = re.compile(r"(?P<digits>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<unit>[kmb]?)", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
_FACTORS = {"": Decimal(1), "k": Decimal(10**3), "m": Decimal(10**6), "b": Decimal(10**9)}
_UNIT_WORDS = re.compile(
    r"(?<=\d)\s*(?P<unit>milliseconds?|msecs?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?)\b"
)
_UNITS = {"mil": "ms", "mse": "ms", "sec": "s", "min": "m", "hou": "h", "hr": "h", "day": "d"}
_EXPECTED = {
    QueryKind.DURATION: "takes a duration, such as `2s` or `500ms`",
    QueryKind.NUMBER: "takes a number, such as `400` or `4k`",
    QueryKind.MONEY: "takes an amount in US dollars, such as `$0.01`",
    QueryKind.TIME: "takes a date, or how long ago, such as `2026-01-31` or `2h`",
    QueryKind.ID: "takes a whole id, such as `0190a1b2-c3d4-7ef0-a5b6-6ea3a82e9328`",
    QueryKind.BOOLEAN: "is `true` or `false`",
}
_MEANT_FIELDS = {
    "duration": "latency",
    "time": "latency",
    "kind": "type",
    "state": "status",
    "tags": "tag",
    "price": "cost",
    "user_id": "user",
    "environment": "env",
    "session": "thread",
    "conversation": "thread",
    "text": "input",
    "message": "error",
    "ttft": "first_token",
    "started": "start",
    "since": "start",
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
class Clause:
    """A part of a query that stands between spaces at its outermost level, with its place."""

    start: int
    end: int
    expression: Expression


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed query: the filter, and its clauses if a space (AND) joins them."""

    expression: Expression | None
    clauses: tuple[Clause, ...]
    is_alternative: bool = False
    """Whether `OR` stands at the outermost level, so that parentheses are due before an AND."""


def parse_query(text: str, now: datetime | None = None) -> ParsedQuery:
    """Parse a query; an empty text has no expression. Raises `FilterError`.

    `now` is the time that `2h` and `today` refer to; dates are days of its time zone. The error's
    `errors` name line and column, the `start` and `end` of the fault in characters from 0, and
    `suggestion`, the name or value that was probably meant.
    """
    if len(text) > MAX_QUERY_LENGTH:
        raise query_error(
            text,
            0,
            len(text),
            f"A query has at most {MAX_QUERY_LENGTH:,} characters; this one has {len(text):,}.",
        )
    return _Parser(UNSTORABLE.sub("\ufffd", text), now or datetime.now(UTC)).parse()


def query_error(text: str, start: int, end: int, message: str, suggestion: str = "") -> FilterError:
    before = text[:start]
    line, column = before.count("\n") + 1, start - before.rfind("\n")
    return FilterError(
        message,
        [
            {
                "line": line,
                "column": column,
                "start": start,
                "end": max(end, start + 1),
                "message": message,
                "suggestion": suggestion,
            }
        ],
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a value; `*` is a wildcard only outside of quotes."""

    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class _Value:
    pieces: tuple[_Piece, ...]
    start: int
    end: int

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def is_quoted(self) -> bool:
        return any(piece.is_quoted for piece in self.pieces)

    @property
    def has_wildcard(self) -> bool:
        return any("*" in piece.text for piece in self.pieces if not piece.is_quoted)

    @property
    def is_presence(self) -> bool:
        return self.text == "*" and not self.is_quoted

    @property
    def pattern(self) -> str:
        """The value as a pattern of `ilike`."""
        escaped = (
            _escape_pattern(piece.text)
            if piece.is_quoted
            else _escape_pattern(piece.text).replace("*", "%")
            for piece in self.pieces
        )
        return "".join(escaped)


def _escape_pattern(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")


@dataclass(slots=True)
class _Parser:
    text: str
    now: datetime
    position: int = 0
    conditions: int = 0
    depth: int = 0
    is_alternative: bool = False
    spans: list[Clause] = field(default_factory=list)

    def parse(self) -> ParsedQuery:
        self._skip_space()
        if self.position == len(self.text):
            return ParsedQuery(None, ())
        expression = self._parse_or()
        self._skip_space()
        if self.position < len(self.text):
            raise self._error(
                self.position, self.position + 1, "There is no opening parenthesis for this `)`."
            )
        return ParsedQuery(expression, tuple(self.spans), self.is_alternative)

    def _error(self, start: int, end: int, message: str, suggestion: str = "") -> FilterError:
        return query_error(self.text, start, end, message, suggestion)

    def _skip_space(self) -> None:
        if match := _SPACE.match(self.text, self.position):
            self.position = match.end()

    def _keyword(self) -> str:
        """The keyword at the position, without a move; empty if there is none."""
        match = _KEYWORD.match(self.text, self.position)
        return {"||": "OR", "&&": "AND"}.get(match[0], match[0]) if match else ""

    def _skip_keyword(self) -> None:
        match = _KEYWORD.match(self.text, self.position)
        self.position = match.end() if match else self.position
        self._skip_space()

    def _at_end(self) -> bool:
        return self.position >= len(self.text) or self.text[self.position] == ")"

    def _parse_or(self) -> Expression:
        is_outermost = self.depth == 0
        alternatives = [self._parse_and()]
        while self._keyword() == "OR":
            start = self.position
            self._skip_keyword()
            if self._at_end() or self._keyword() in {"OR", "AND"}:
                raise self._error(start, start + 2, "`OR` stands between two conditions.")
            alternatives.append(self._parse_and())
        if len(alternatives) == 1:
            return alternatives[0]
        if is_outermost:
            # The alternatives can only be removed together.
            end = len(self.text.rstrip())
            start = len(self.text) - len(self.text.lstrip())
            self.spans = [Clause(start, end, Or(tuple(alternatives)))]
            self.is_alternative = True
        return Or(tuple(alternatives))

    def _parse_and(self) -> Expression:
        parts: list[Expression] = []
        words: list[str] = []

        def add_words() -> None:
            if words:
                parts.append(Condition(ALL_CONTENT, Comparison.SEARCH, " ".join(words)))
                words.clear()

        while not self._at_end():
            keyword = self._keyword()
            if keyword == "OR" and (parts or words):
                break
            if keyword in {"AND", "OR"}:
                start = self.position
                self._skip_keyword()
                is_between = (parts or words) and not self._at_end()
                if keyword == "OR" or not is_between or self._keyword() in {"OR", "AND"}:
                    raise self._error(
                        start, start + 2, f"`{keyword}` stands between two conditions."
                    )
                continue
            start = self.position
            expression = self._parse_unary()
            if self.depth == 0:
                self.spans.append(Clause(start, self.position, expression))
            if isinstance(expression, Condition) and expression.field is ALL_CONTENT:
                words.append(str(expression.value))
            else:
                parts.append(expression)
            self._skip_space()
        add_words()
        if not parts:
            raise self._error(
                max(0, self.position - 1), self.position + 1, "The parentheses are empty."
            )
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _parse_unary(self) -> Expression:
        self.depth += 1
        start = self.position
        if self.depth > MAX_QUERY_DEPTH:
            raise self._error(start, start + 1, "The parentheses are nested too deeply.")
        try:
            if self._keyword() == "NOT":
                self._skip_keyword()
                return self._parse_negation(start)
            character = self.text[self.position]
            if character == "-" and self.text[start + 1 : start + 2].strip():
                self.position += 1
                return self._parse_negation(start)
            if character == "(":
                return self._parse_group(self._parse_or)
            return self._parse_clause()
        finally:
            self.depth -= 1

    def _parse_negation(self, start: int) -> Expression:
        if self._at_end() or self._keyword() in {"OR", "AND"}:
            raise self._error(start, self.position, "A negation needs a condition after it.")
        return Not(self._parse_unary())

    def _parse_group(self, parse_inner: Callable[[], Expression]) -> Expression:
        start = self.position
        self.position += 1
        self._skip_space()
        expression = parse_inner()
        self._skip_space()
        if self.text[self.position : self.position + 1] != ")":
            raise self._error(start, start + 1, "This parenthesis is not closed.")
        self.position += 1
        return expression

    def _parse_clause(self) -> Expression:
        start = self.position
        match = _FIELD.match(self.text, start)
        if match is None:
            self._check_missing_colon()
            return self._search_all(self._read_value())
        if match["name"] in {"http", "https"} and self.text[match.end() :].startswith("//"):
            value = self._read_value()
            raise self._error(start, value.end, "An address stands in quotes.", f'"{value.text}"')
        self.position = match.end()
        query_field = self._find_field(match)
        self._skip_space()
        return self._parse_field_value(query_field, start, is_grouped=False)

    def _check_missing_colon(self) -> None:
        """Raise an error for `latency>2s`, which would be searched as a word."""
        match = _MISSING_COLON.match(self.text, self.position)
        if match is None or match["name"] not in QUERY_FIELDS_BY_NAME:
            return
        operator = "" if match["operator"] == "=" else match["operator"]
        meant = f"{match['name']}:{operator}{match['value']}"
        raise self._error(
            match.start(),
            match.end(),
            f"A colon is missing after `{match['name']}`. Write `{meant:.80}`.",
            meant,
        )

    def _find_field(self, match: re.Match[str]) -> QueryField:
        name = match["name"]
        path = [
            part["plain"] or re.sub(r"\\(.)", r"\1", part["quoted"])
            for part in _PATH_PART.finditer(match["path"])
        ]
        full_name = ".".join([name, *path])
        if (known := QUERY_FIELDS_BY_NAME.get(full_name)) is not None:
            return known
        if path and name in KEYED_FIELDS:
            return keyed_field(name, ".".join(path))
        lowered = full_name.lower()
        candidates = [*QUERY_FIELDS_BY_NAME]
        meant = _MEANT_FIELDS.get(lowered) or next(
            iter(get_close_matches(lowered, candidates, n=1, cutoff=0.7)), ""
        )
        hint = f"Did you mean `{meant}`?" if meant else f"Metadata is `metadata.{full_name:.60}`."
        raise self._error(
            match.start(), match.end() - 1, f"Unknown field `{full_name:.60}`. {hint}", meant
        )

    def _read_value(self) -> _Value:
        """Read quoted and unquoted text up to a space or parenthesis."""
        start = self.position
        pieces: list[_Piece] = []
        while not (self.position >= len(self.text) or self.text[self.position] in "()"):
            character = self.text[self.position]
            if character.isspace():
                break
            if character == '"':
                match = _QUOTED.match(self.text, self.position)
                if match is None:
                    raise self._error(
                        self.position, len(self.text), "This quotation mark is not closed."
                    )
                pieces.append(_Piece(re.sub(r"\\(.)", r"\1", match["text"]), is_quoted=True))
            else:
                match = _UNQUOTED.match(self.text, self.position)
                if match is None:
                    break
                pieces.append(_Piece(match[0], is_quoted=False))
            self.position = match.end()
        if not pieces and self.text[start : start + 1] == "(":
            raise self._error(start, start + 1, "Put text with parentheses in quotes.")
        return _Value(tuple(pieces), start, self.position)

    def _parse_field_value(
        self, query_field: QueryField, start: int, *, is_grouped: bool
    ) -> Expression:
        if self._at_end():
            message = f"`{query_field.name}` needs a value{_example(query_field)}."
            raise self._error(start, self.position, message)
        if self.text[self.position] == "(" and not is_grouped:
            return self._parse_group(lambda: self._parse_alternatives(query_field, start))
        if self.text[self.position] == "[":
            return self._parse_bracket_range(query_field, start)
        operator = ""
        if match := _OPERATOR.match(self.text, self.position):
            operator = match[0]
            self.position = match.end()
            self._skip_space()
        value = self._read_value()
        if not value.text and not value.is_quoted:
            message = f"`{query_field.name}` needs a value{_example(query_field)}."
            raise self._error(start, self.position, message)
        if self.text[self.position : self.position + 1] == "(":
            raise self._error(
                value.start, self.position + 1, "Put text with parentheses in quotes."
            )
        if operator == "!=":
            return Not(self._build(query_field, "", value))
        return self._build(query_field, "" if operator == "=" else operator, value)

    def _parse_alternatives(self, query_field: QueryField, start: int) -> Expression:
        """Parse `a OR b` or `a b` in the parentheses of a field."""
        alternatives: list[list[Expression]] = [[]]
        while not self._at_end():
            keyword = self._keyword()
            if keyword in {"OR", "AND"}:
                at = self.position
                self._skip_keyword()
                if not alternatives[-1] or self._at_end():
                    raise self._error(at, at + 2, f"`{keyword}` stands between two values.")
                if keyword == "OR":
                    alternatives.append([])
                continue
            is_negative = keyword == "NOT"
            if is_negative:
                self._skip_keyword()
            expression = self._parse_field_value(query_field, start, is_grouped=True)
            alternatives[-1].append(Not(expression) if is_negative else expression)
            self._skip_space()
        if not alternatives[0]:
            raise self._error(start, self.position + 1, f"`{query_field.name}` needs a value.")
        return _join_alternatives(
            [parts[0] if len(parts) == 1 else And(tuple(parts)) for parts in alternatives]
        )

    def _parse_bracket_range(self, query_field: QueryField, start: int) -> Expression:
        end = self.text.find("]", self.position)
        inner = self.text[self.position + 1 : end] if end >= 0 else ""
        low, separator, high = re.sub(r"\s+(?:TO|to)\s+", "\0", inner.strip()).partition("\0")
        if not separator:
            raise self._error(
                self.position, end + 1 if end >= 0 else len(self.text), "A range is `[1 TO 5]`."
            )
        value_start = self.position + 1
        self.position = end + 1
        pieces = (_Piece(f"{low.strip('*')}..{high.strip('*')}", is_quoted=False),)
        return self._build(query_field, "", _Value(pieces, value_start, end))

    def _search_all(self, value: _Value) -> Condition:
        if value.text.startswith(":"):
            raise self._error(value.start, value.end, "A field is missing in front of the colon.")
        self._count()
        return Condition(ALL_CONTENT, Comparison.SEARCH, self._words(value))

    def _words(self, value: _Value) -> str:
        """The search text: quoted words are whole, other words are beginnings."""
        words = [
            " ".join(split_words(piece.text)) if piece.is_quoted else search_words(piece.text)
            for piece in value.pieces
        ]
        text = " ".join(filter(None, words))
        if not text:
            raise self._error(
                value.start, value.end, "A search needs at least one letter or digit."
            )
        return text

    def _count(self) -> None:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise self._error(
                0, len(self.text), f"A query has at most {MAX_CONDITIONS} conditions."
            )

    def _build(self, query_field: QueryField, operator: str, value: _Value) -> Expression:
        """Build the condition of one field with one operator and value."""
        self._count()
        if value.is_presence and not operator:
            return _presence(query_field)
        kind = query_field.kind
        if operator == "~":
            return self._build_contains(query_field, value)
        if operator and not query_field.is_ordered:
            plain = f"{query_field.name}:{value.text}"
            raise self._error(
                value.start,
                value.end,
                f"`{query_field.name}` has no order. Write `{plain:.80}` or `{plain:.80}*`.",
            )
        if kind is QueryKind.CONTENT:
            return _wrap(
                query_field, Condition(query_field.field, Comparison.SEARCH, self._words(value))
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

    def _build_equal(self, query_field: QueryField, value: _Value) -> Expression:
        is_score = query_field.field.name == "feedback_score"
        if is_score and value.text.lower() in {"true", "false"}:
            score = Decimal(value.text.lower() == "true")
            return _wrap(query_field, Condition(query_field.field, Comparison.EQUAL, score))
        if is_score and _parse_number(value.text) is None:
            # A feedback without a number has a text.
            condition = Condition(BY_NAME["feedback_value"], Comparison.EQUAL, value.text)
            return _wrap(query_field, condition)
        operand = self._operand(query_field, value, value.text, is_ordered=False)
        return _wrap(query_field, Condition(query_field.field, Comparison.EQUAL, operand))

    def _build_contains(self, query_field: QueryField, value: _Value) -> Expression:
        run_field = query_field.field
        if query_field.kind is QueryKind.CONTENT or run_field.is_searched:
            words = " ".join(split_words(value.text.rstrip("*")))
            if not words:
                raise self._error(value.start, value.end, "`~` needs a word after it.")
            suffix = "*" if value.has_wildcard and value.text.endswith("*") else ""
            return _wrap(query_field, Condition(run_field, Comparison.SEARCH, words + suffix))
        if query_field.kind in {QueryKind.TEXT, QueryKind.MIXED}:
            pattern = f"%{_escape_pattern(value.text)}%"
            return _wrap(query_field, Condition(run_field, Comparison.ILIKE, pattern))
        expected = _EXPECTED.get(query_field.kind, "has no words")
        raise self._error(value.start, value.end, f"`{query_field.name}` {expected}.")

    def _build_range(self, query_field: QueryField, value: _Value) -> Expression:
        low, _, high = value.text.partition("..")
        if not low and not high:
            raise self._error(value.start, value.end, "A range is `1s..5s`.")
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

    def _time(self, query_field: QueryField, value: _Value, text: str) -> TimeSpan:
        span = parse_time_span(text, self.now)
        if span is None:
            raise self._mistyped(query_field, value)
        return span

    def _operand(
        self, query_field: QueryField, value: _Value, text: str, *, is_ordered: bool
    ) -> Value:
        operand: Value | None
        match query_field.kind:
            case QueryKind.DURATION:
                operand = _parse_duration(text)
            case QueryKind.NUMBER:
                operand = _parse_number(text)
            case QueryKind.MONEY:
                operand = _parse_number(text.strip().removeprefix("$"))
            case QueryKind.ID:
                operand = _parse_id(text)
            case QueryKind.BOOLEAN:
                operand = {"true": True, "yes": True, "false": False, "no": False}.get(text.lower())
            case QueryKind.MIXED if is_ordered:
                number = _parse_number(text)
                operand = text if number is None or value.is_quoted else number
            case _:
                operand = self._word(query_field, value, text)
        if operand is None:
            raise self._mistyped(query_field, value)
        return operand

    def _word(self, query_field: QueryField, value: _Value, text: str) -> str:
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
            value.start,
            value.end,
            f"`{query_field.name}` is {known}, not `{text:.60}`.{hint}",
            meant if hint else "",
        )

    def _mistyped(self, query_field: QueryField, value: _Value) -> FilterError:
        message = f"`{query_field.name}` {_EXPECTED[query_field.kind]}."
        return self._error(value.start, value.end, message)


def _example(query_field: QueryField) -> str:
    example = query_field.example
    return f", such as `{query_field.name}:{example}`" if example else ""


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


def _join_alternatives(alternatives: Sequence[Expression]) -> Expression:
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


def _parse_duration(text: str) -> Decimal | None:
    plain = _UNIT_WORDS.sub(lambda match: _short_unit(match["unit"]), text.lower())
    try:
        return literals.parse_seconds(String(plain, SourcePosition(1, 1)))
    except FilterError:
        return None


def _short_unit(word: str) -> str:
    return next(unit for prefix, unit in _UNITS.items() if word.startswith(prefix))


def _parse_number(text: str) -> Decimal | None:
    """Parse digits with an optional `k`, `m` or `b`; thousands may be separated by commas."""
    plain = text.strip().lower().replace("_", "")
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return None
    try:
        value = literals.parse_number(String(match["digits"], SourcePosition(1, 1)))
    except FilterError:
        return None
    return value * _FACTORS[match["unit"]]


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
