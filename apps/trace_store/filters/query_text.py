"""Parses the query bar's language, `field:value` clauses, to the filter tree of `parsing`.

`status:error latency:>2s -env:dev tag:(billing OR urgent) "card expired"`: a space means AND, words
without a field search all content by their beginnings. Each error is a sentence with the position
of the clause and, where a name is close, the name that was probably meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches

from apps.trace_store.errors import FilterError
from apps.trace_store.filters.fields import ALL_CONTENT
from apps.trace_store.filters.nodes import And, Comparison, Condition, Expression, Not, Or
from apps.trace_store.filters.parsing import MAX_CONDITIONS
from apps.trace_store.filters.query_conditions import ConditionBuilder, join_alternatives
from apps.trace_store.filters.query_fields import (
    KEYED_FIELDS,
    QUERY_FIELDS_BY_NAME,
    QueryField,
    keyed_field,
)
from apps.trace_store.filters.query_values import QueryValue, ValuePiece, query_error
from apps.trace_store.filters.syntax import UNSTORABLE

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


@dataclass(slots=True)
class _Parser:
    text: str
    now: datetime
    position: int = 0
    conditions: int = 0
    depth: int = 0
    is_alternative: bool = False
    spans: list[Clause] = field(default_factory=list)
    builder: ConditionBuilder = field(init=False)

    def __post_init__(self) -> None:
        self.builder = ConditionBuilder(self.text, self.now)

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

    def _read_value(self) -> QueryValue:
        """Read quoted and unquoted text up to a space or parenthesis."""
        start = self.position
        pieces: list[ValuePiece] = []
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
                pieces.append(ValuePiece(re.sub(r"\\(.)", r"\1", match["text"]), is_quoted=True))
            else:
                match = _UNQUOTED.match(self.text, self.position)
                if match is None:
                    break
                pieces.append(ValuePiece(match[0], is_quoted=False))
            self.position = match.end()
        if not pieces and self.text[start : start + 1] == "(":
            raise self._error(start, start + 1, "Put text with parentheses in quotes.")
        return QueryValue(tuple(pieces), start, self.position)

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
        return join_alternatives(
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
        pieces = (ValuePiece(f"{low.strip('*')}..{high.strip('*')}", is_quoted=False),)
        return self._build(query_field, "", QueryValue(pieces, value_start, end))

    def _search_all(self, value: QueryValue) -> Condition:
        if value.text.startswith(":"):
            raise self._error(value.start, value.end, "A field is missing in front of the colon.")
        self._count()
        return Condition(ALL_CONTENT, Comparison.SEARCH, self.builder.search_text(value))

    def _build(self, query_field: QueryField, operator: str, value: QueryValue) -> Expression:
        self._count()
        return self.builder.build(query_field, operator, value)

    def _count(self) -> None:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise self._error(
                0, len(self.text), f"A query has at most {MAX_CONDITIONS} conditions."
            )


def _example(query_field: QueryField) -> str:
    example = query_field.example
    return f", such as `{query_field.name}:{example}`" if example else ""
