"""Fills the variables of prompt templates in.

Templates are text of members: names are looked up in the given values only, never as attributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from string import Formatter
from typing import Any, TypeAlias

import msgspec

from apps.core.json import dumps_text
from apps.playground.errors import BadSetting, MissingVariables
from apps.playground.setting import Setting, convert
from apps.prompts.messages import F_STRING, MUSTACHE, find_variables, iterate_tags
from apps.providers.chat import MAX_MESSAGES, Block, ChatMessage, TextBlock

MAX_RENDERED_CHARACTERS = 8_000_000
MAX_SECTION_DEPTH = 20
MAX_RENDERED_PIECES = 500_000
"""Texts and values that a prompt is put together from; sections repeat theirs."""
MAX_VARIABLES = 500

_CONVERSIONS: Mapping[str, Callable[[Any], str]] = {"r": repr, "s": str, "a": ascii}


def list_variables(setting: Setting) -> list[str]:
    """The variables of the prompt in order. Raises `BadSetting` for a malformed template."""
    names: dict[str, None] = {}
    for message in setting.messages:
        if message.role == "placeholder":
            names[message.text.strip()] = None
            continue
        if setting.template_format == "none":
            continue
        for block in message.blocks:
            if isinstance(block, TextBlock):
                names.update(
                    dict.fromkeys(find_text_variables(block.text, setting.template_format))
                )
    if len(names) > MAX_VARIABLES:
        raise BadSetting(f"A prompt has at most {MAX_VARIABLES} variables.")
    return list(names)


def find_text_variables(text: str, template_format: str) -> list[str]:
    """The variables of a text. Raises `BadSetting` for a malformed template."""
    if template_format == MUSTACHE:
        # Names inside a section are those of its value.
        nodes = _parse_mustache(text).nodes
        names = [node.path[0] for node in nodes if not isinstance(node, str)]
        return list(dict.fromkeys(name for name in names if name not in {"", "."}))
    try:
        return find_variables(text, template_format)
    except ValueError as error:
        raise BadSetting(f"A message is not a valid template: {error}") from None


def render_messages(setting: Setting, variables: Mapping[str, Any]) -> list[ChatMessage]:
    """Return the messages with their variables filled in.

    Raises `MissingVariables` and `BadSetting`.
    """
    missing = [name for name in list_variables(setting) if name not in variables]
    if missing:
        raise MissingVariables(missing)
    rendered: list[ChatMessage] = []
    output = _Output()
    for message in setting.messages:
        if message.role == "placeholder":
            name = message.text.strip()
            if len(rendered) + _count(variables[name]) > MAX_MESSAGES:
                raise BadSetting(f"There may be {MAX_MESSAGES} messages.")
            rendered += _read_placeholder(name, variables)
        else:
            content = _render_content(message.content, setting.template_format, variables, output)
            rendered.append(msgspec.structs.replace(message, content=content))
    if sum(len(message.text) for message in rendered) > MAX_RENDERED_CHARACTERS:
        raise BadSetting(f"The messages have more than {MAX_RENDERED_CHARACTERS} characters.")
    if len(rendered) > MAX_MESSAGES:
        raise BadSetting(f"There may be {MAX_MESSAGES} messages.")
    return rendered


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def _read_placeholder(name: str, variables: Mapping[str, Any]) -> list[ChatMessage]:
    value = variables[name]
    messages = convert(value if isinstance(value, list) else [value], list[ChatMessage])
    if any(message.role == "placeholder" for message in messages):
        raise BadSetting(f"The variable {name} must be a list of messages.")
    return messages


class _Output:
    """Collects rendered pieces; the messages of a prompt share the limits.

    Raises `BadSetting` beyond them.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._count = self._size = 0

    def add(self, piece: str) -> None:
        self.count(len(piece))
        self._pieces.append(piece)

    def count(self, size: int) -> None:
        """Count the characters of a piece, or of a value that a format shortens."""
        # Empty pieces count, too: a section without text repeats as often as one with text.
        self._count, self._size = self._count + 1, self._size + size
        if self._count > MAX_RENDERED_PIECES or self._size > MAX_RENDERED_CHARACTERS:
            raise BadSetting(
                f"The messages have more than {MAX_RENDERED_CHARACTERS} characters, or"
                f" {MAX_RENDERED_PIECES} texts and values."
            )

    def take(self) -> str:
        """Return the pieces since the last call as one text."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return text


def _render_content(
    content: str | list[Block],
    template_format: str,
    variables: Mapping[str, Any],
    output: _Output,
) -> str | list[Block]:
    if isinstance(content, str):
        return _render_text(content, template_format, variables, output)
    return [
        TextBlock(_render_text(block.text, template_format, variables, output))
        if isinstance(block, TextBlock)
        else block
        for block in content
    ]


def _render_text(
    text: str, template_format: str, variables: Mapping[str, Any], output: _Output
) -> str:
    """Fill the variables in, which all have values."""
    if template_format == F_STRING:
        _render_f_string(text, variables, output)
    elif template_format == MUSTACHE:
        _render_nodes(_parse_mustache(text).nodes, [variables], output)
    else:
        output.add(text)
    return output.take()


def _render_f_string(text: str, variables: Mapping[str, Any], output: _Output) -> None:
    for literal, name, specification, conversion in Formatter().parse(text):
        output.add(literal)
        if name is None:
            continue
        value = variables[name]
        if conversion or specification:
            output.add(_format(value, specification or "", conversion, output))
        else:
            output.add(_as_text(value))


def _format(value: Any, specification: str, conversion: str | None, output: _Output) -> str:
    # A width of a billion would be a string of that length.
    if re.search(r"\d{4}", specification):
        raise BadSetting("A format of a variable has at most three digits.")
    if conversion:
        if conversion not in _CONVERSIONS:
            raise BadSetting("A variable has the conversion !r, !s or !a.")
        value = _CONVERSIONS[conversion](value)
        output.count(len(value))
    try:
        formatted = format(value, specification)
        formatted.encode()
    except (ValueError, TypeError, OverflowError):
        # `c` formats numbers beyond the characters, and halves of surrogate pairs.
        raise BadSetting("The format of a variable does not fit its value.") from None
    return formatted


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps_text(value)


# Mustache: variables, sections, inverted sections and comments. Text of models is not escaped.


@dataclass(slots=True)
class _Section:
    path: tuple[str, ...]
    is_inverted: bool = False
    nodes: list[_Node] = field(default_factory=list)


_Node: TypeAlias = "str | _Variable | _Section"


@dataclass(frozen=True, slots=True)
class _Variable:
    path: tuple[str, ...]


def _parse_mustache(text: str) -> _Section:
    stack, position = [_Section(("",))], 0
    for start, end, kind, name in iterate_tags(text):
        stack[-1].nodes.append(text[position:start])
        position = end
        path = (name,) if name == "." else tuple(name.split("."))
        if kind in {"#", "^"}:
            section = _Section(path, is_inverted=kind == "^")
            stack[-1].nodes.append(section)
            stack.append(section)
            if len(stack) > MAX_SECTION_DEPTH:
                raise BadSetting(f"Sections may be nested {MAX_SECTION_DEPTH} levels deep.")
        elif kind == "/":
            if stack[-1].path != path or len(stack) == 1:
                raise BadSetting("A section of a template ends that did not begin.")
            stack.pop()
        elif kind == ">":
            raise BadSetting("Templates have no partials.")
        elif kind != "!":
            stack[-1].nodes.append(_Variable(path))
    if len(stack) > 1:
        raise BadSetting("A section of a template does not end.")
    stack[0].nodes.append(text[position:])
    return stack[0]


def _render_nodes(nodes: Sequence[_Node], scopes: list[Any], output: _Output) -> None:
    for node in nodes:
        if isinstance(node, str):
            output.add(node)
        elif isinstance(node, _Variable):
            value = _look_up(node.path, scopes)
            output.add("" if value is None else _as_text(value))
        else:
            _render_section(node, scopes, output)


def _render_section(section: _Section, scopes: list[Any], output: _Output) -> None:
    value = _look_up(section.path, scopes)
    if section.is_inverted:
        if not value:
            _render_nodes(section.nodes, scopes, output)
    elif isinstance(value, list):
        for item in value:
            _render_nodes(section.nodes, [item, *scopes], output)
    elif value:
        _render_nodes(section.nodes, [value, *scopes], output)


def _look_up(path: tuple[str, ...], scopes: Sequence[Any]) -> Any:
    first = path[0]
    if first == ".":
        return scopes[0]
    for scope in scopes:
        if isinstance(scope, Mapping) and first in scope:
            value = scope[first]
            for part in islice(path, 1, None):
                if not isinstance(value, Mapping):
                    return None
                value = value.get(part)
            return value
    return None
