"""Parses filter text to calls with source positions; `parsing` interprets them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias, cast

import lark

from apps.trace_store.errors import FilterError

MAX_LENGTH = 100_000
"""Maximum number of characters."""
MAX_DEPTH = 50
"""Maximum nesting of calls."""

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_TOKEN_NAMES = {
    "LPAR": "a `(`",
    "RPAR": "a `)`",
    "LSQB": "a `[`",
    "RSQB": "a `]`",
    "COMMA": "a `,`",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
}
_END = "$END"
_EXAMPLE = 'such as `eq(name, "agent")`'


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A position in the filter text, counted from 1."""

    line: int
    column: int

    def error(self, message: str) -> FilterError:
        """Return the error of this place; the message is a sentence that does not name it."""
        return FilterError(
            message, [{"line": self.line, "column": self.column, "message": message}]
        )


@dataclass(frozen=True, slots=True)
class Name:
    """A field, or true, false or null."""

    text: str
    position: SourcePosition


@dataclass(frozen=True, slots=True)
class Number:
    text: str
    position: SourcePosition


@dataclass(frozen=True, slots=True)
class String:
    text: str
    position: SourcePosition


@dataclass(frozen=True, slots=True)
class ListLiteral:
    values: tuple[Literal, ...]
    position: SourcePosition


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Argument, ...]
    position: SourcePosition
    depth: int


Literal: TypeAlias = Name | Number | String
Argument: TypeAlias = Call | ListLiteral | Literal


def parse_calls(text: str) -> Call:
    """Parse the text, which is one call. Raises `FilterError` with the position."""
    if len(text) > MAX_LENGTH:
        raise SourcePosition(1, 1).error(
            f"A filter has at most {MAX_LENGTH:,} characters; this one has {len(text):,}."
        )
    # Replace characters that PostgreSQL cannot store, as in stored texts, one for one.
    text = UNSTORABLE.sub("\ufffd", text)
    try:
        # Lark does not type the result of a transformer.
        call: Call = _parser().parse(text)  # type: ignore[assignment]
    except lark.UnexpectedToken as error:
        message = _describe_problem(str(error.token), error.token.type, error.accepts)
        raise _error_position(text, error).error(message) from None
    except lark.UnexpectedCharacters as error:
        character = text[error.pos_in_stream or 0]
        if character in "\"'":
            message = "This quotation mark is not closed."
        elif character == ":":
            message = f"`field:value` is the form of the query bar. Write a function, {_EXAMPLE}."
        else:
            message = _describe_problem(character, "", error.allowed)
        raise _error_position(text, error).error(message) from None
    return call


def _error_position(text: str, error: lark.UnexpectedInput) -> SourcePosition:
    if isinstance(error, lark.UnexpectedToken) and error.token.type == _END:
        end = text.rstrip()
        return SourcePosition(end.count("\n") + 1, len(end) - end.rfind("\n"))
    return SourcePosition(error.line, error.column)


def _describe_problem(text: str, kind: str, expected: set[str]) -> str:
    """Return a sentence about a text where the grammar allows only `expected`."""
    # Keep the order of the table.
    labels = [label for name, label in _TOKEN_NAMES.items() if name in expected]
    if not labels:
        return (
            f"The filter is complete before `{text:.40}`."
            " Join conditions by `and(…, …)` or `or(…, …)`."
        )
    needed = labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} or {labels[-1]}"
    if kind == _END:
        is_empty = expected == {"NAME"}
        return (
            f"The filter is empty. Write a condition, {_EXAMPLE}."
            if is_empty
            else f"The filter ends too early: {needed} is missing."
        )
    return f"`{text:.40}` cannot stand here. Write {needed} in its place."


class _CallBuilder(lark.Transformer[lark.Token, Call]):
    """Builds the dataclasses during parsing, without a second pass over a tree."""

    def NAME(self, token: lark.Token) -> Name:  # noqa: N802  (named for the terminal)
        return Name(str(token), _token_position(token))

    def NUMBER(self, token: lark.Token) -> Number:  # noqa: N802
        return Number(str(token), _token_position(token))

    def STRING(self, token: lark.Token) -> String:  # noqa: N802
        return String(_unquote(token), _token_position(token))

    def listing(self, values: list[Literal]) -> ListLiteral:
        first = values[0].position if values else SourcePosition(1, 1)
        return ListLiteral(tuple(values), first)

    def call(self, children: list[Argument]) -> Call:
        name, arguments = cast("Name", children[0]), children[1:]
        inner = [argument.depth for argument in arguments if isinstance(argument, Call)]
        depth = 1 + max(inner, default=0)
        if depth > MAX_DEPTH:
            raise name.position.error(f"Conditions are nested at most {MAX_DEPTH} levels deep.")
        return Call(name.text, tuple(arguments), name.position, depth)

    def start(self, children: list[Call]) -> Call:
        return children[0]


def _token_position(token: lark.Token) -> SourcePosition:
    return SourcePosition(token.line or 1, token.column or 1)


def _unquote(token: lark.Token) -> str:
    r"""Return the value of a string literal: JSON's escapes, and `\'`."""

    def unescape(match: re.Match[str]) -> str:
        escape = match[0][1:]
        if escape in {'"', "'", "\\", "/"}:
            return escape
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        before = token[: match.start()]
        lines = before.count("\n")
        start = _token_position(token)
        column = match.start() - before.rfind("\n") if lines else start.column + match.start()
        raise SourcePosition(start.line + lines, column).error(
            f"`\\{escape}` is not an escape sequence. Write a backslash as `\\\\`."
        )

    inner = token[1:-1]
    if "\\" not in inner:
        return str(inner)
    text = _ESCAPE.sub(unescape, token)[1:-1]
    # Two escapes may encode one character (a surrogate pair), as in JSON.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return UNSTORABLE.sub("\ufffd", text)


@cache
def _parser() -> lark.Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text()
    return lark.Lark(grammar, parser="lalr", transformer=_CallBuilder(), maybe_placeholders=False)
