"""Fills the variables of prompt templates in.

Templates are text of members: names are looked up in the given values only, never as attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, TypeAlias

import msgspec

from apps.core.json import dumps_text
from apps.playground.errors import BadSetting, MissingVariables
from apps.playground.setting import Setting, convert
from apps.prompts.messages import F_STRING, MUSTACHE, find_variables
from apps.providers.chat import MAX_MESSAGES, Block, ChatMessage, TextBlock

MAX_RENDERED_CHARACTERS = 8_000_000
MAX_SECTION_DEPTH = 20
_TAG = re.compile(r"\{\{\{\s*([^{}]*?)\s*\}\}\}|\{\{\s*([#^/&!>]?)\s*([^{}]*?)\s*\}\}")


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
                names.update(dict.fromkeys(_find_variables(block.text, setting.template_format)))
    return list(names)


def _find_variables(text: str, template_format: str) -> list[str]:
    if template_format == MUSTACHE:
        # Names inside a section are those of its value.
        nodes = _parse_mustache(text).nodes
        names = [node.name.partition(".")[0] for node in nodes if not isinstance(node, str)]
        return [name for name in names if name]
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
    for message in setting.messages:
        if message.role == "placeholder":
            rendered += _read_placeholder(message.text.strip(), variables)
        else:
            content = _render_content(message.content, setting.template_format, variables)
            rendered.append(msgspec.structs.replace(message, content=content))
    if sum(len(message.text) for message in rendered) > MAX_RENDERED_CHARACTERS:
        raise BadSetting(f"The messages have more than {MAX_RENDERED_CHARACTERS} characters.")
    if len(rendered) > MAX_MESSAGES:
        raise BadSetting(f"There may be {MAX_MESSAGES} messages.")
    return rendered


def _read_placeholder(name: str, variables: Mapping[str, Any]) -> list[ChatMessage]:
    value = variables[name]
    messages = convert(value if isinstance(value, list) else [value], list[ChatMessage])
    if any(message.role == "placeholder" for message in messages):
        raise BadSetting(f"The variable {name} must be a list of messages.")
    return messages


def _render_content(
    content: str | list[Block], template_format: str, variables: Mapping[str, Any]
) -> str | list[Block]:
    if isinstance(content, str):
        return render_text(content, template_format, variables)
    return [
        TextBlock(render_text(block.text, template_format, variables))
        if isinstance(block, TextBlock)
        else block
        for block in content
    ]


def render_text(text: str, template_format: str, variables: Mapping[str, Any]) -> str:
    """Fill the variables in, which all have values."""
    if template_format == F_STRING:
        return "".join(_render_f_string(text, variables))
    if template_format == MUSTACHE:
        return _render_mustache(text, variables)
    return text


def _render_f_string(text: str, variables: Mapping[str, Any]) -> Iterator[str]:
    for literal, name, specification, conversion in Formatter().parse(text):
        yield literal
        if name is None:
            continue
        value = variables[name]
        if conversion or specification:
            yield _format(value, specification or "", conversion)
        else:
            yield _as_text(value)


def _format(value: Any, specification: str, conversion: str | None) -> str:
    # A width of a billion would be a string of that length.
    if re.search(r"\d{4}", specification):
        raise BadSetting("A format of a variable has at most three digits.")
    try:
        if conversion:
            value = repr(value) if conversion == "r" else str(value)
        return format(value, specification)
    except (ValueError, TypeError):
        raise BadSetting("The format of a variable does not fit its value.") from None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps_text(value)


# Mustache: variables, sections, inverted sections and comments. Text of models is not escaped.


@dataclass(slots=True)
class _Section:
    name: str
    is_inverted: bool = False
    nodes: list[_Node] = field(default_factory=list)


_Node: TypeAlias = "str | _Variable | _Section"


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str


class _Output:
    """Collects the rendered pieces. Raises `BadSetting` for too many characters."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> None:
        self._size += len(piece) + 1
        if self._size > MAX_RENDERED_CHARACTERS:
            raise BadSetting(f"A message has more than {MAX_RENDERED_CHARACTERS} characters.")
        self.pieces.append(piece)


def _render_mustache(text: str, variables: Mapping[str, Any]) -> str:
    output = _Output()
    _render_nodes(_parse_mustache(text).nodes, [variables], output)
    return "".join(output.pieces)


def _parse_mustache(text: str) -> _Section:
    stack, position = [_Section("")], 0
    for match in _TAG.finditer(text):
        stack[-1].nodes.append(text[position : match.start()])
        position = match.end()
        kind, name = match[2] or "", match[1] if match[1] is not None else match[3]
        if kind in {"#", "^"}:
            section = _Section(name, is_inverted=kind == "^")
            stack[-1].nodes.append(section)
            stack.append(section)
            if len(stack) > MAX_SECTION_DEPTH:
                raise BadSetting(f"Sections may be nested {MAX_SECTION_DEPTH} levels deep.")
        elif kind == "/":
            if stack[-1].name != name or len(stack) == 1:
                raise BadSetting("A section of a template ends that did not begin.")
            stack.pop()
        elif kind == ">":
            raise BadSetting("Templates have no partials.")
        elif kind != "!":
            stack[-1].nodes.append(_Variable(name))
    if len(stack) > 1:
        raise BadSetting("A section of a template does not end.")
    stack[0].nodes.append(text[position:])
    return stack[0]


def _render_nodes(nodes: Sequence[_Node], scopes: list[Any], output: _Output) -> None:
    for node in nodes:
        if isinstance(node, str):
            output.add(node)
        elif isinstance(node, _Variable):
            value = _look_up(node.name, scopes)
            output.add("" if value is None else _as_text(value))
        else:
            _render_section(node, scopes, output)


def _render_section(section: _Section, scopes: list[Any], output: _Output) -> None:
    value = _look_up(section.name, scopes)
    if section.is_inverted:
        if not value:
            _render_nodes(section.nodes, scopes, output)
    elif isinstance(value, list):
        for item in value:
            _render_nodes(section.nodes, [item, *scopes], output)
    elif value:
        _render_nodes(section.nodes, [value, *scopes], output)


def _look_up(name: str, scopes: Sequence[Any]) -> Any:
    if name == ".":
        return scopes[0]
    first, *rest = name.split(".")
    for scope in scopes:
        if isinstance(scope, Mapping) and first in scope:
            value = scope[first]
            for part in rest:
                value = value.get(part) if isinstance(value, Mapping) else None
            return value
    return None
