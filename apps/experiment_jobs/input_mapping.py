"""Builds a run's input from the inputs of an example.

A mapping is a JSON object. Each `{{path}}` in its strings is replaced: a string that is one
placeholder becomes the value itself, in another string the value is inserted as text. A path names
fields, and positions in lists from 0, with dots: `messages.0.content`.
"""

from __future__ import annotations

import re
from typing import Any

from apps.core.json import dumps, dumps_text
from apps.experiment_jobs.errors import InputTooLarge, InvalidMapping

MAX_DEPTH = 20
MAX_MAPPING_BYTES = 65_536
MAX_INPUT_BYTES = 20_971_520
"""Of all values that a mapping inserts: it may name a large one many times."""
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")
_MISSING = object()


class MissingInput(Exception):
    """The example lacks a field that the mapping names."""


def check_mapping(mapping: Any) -> None:
    """Raise `InvalidMapping` for anything but an object with well-formed placeholders."""
    if not isinstance(mapping, dict):
        raise InvalidMapping("`input_mapping` must be an object.")
    if len(dumps(mapping)) > MAX_MAPPING_BYTES:
        raise InvalidMapping(f"`input_mapping` has at most {MAX_MAPPING_BYTES} bytes.")
    _check(mapping, 0)


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidMapping(f"`input_mapping` may be nested {MAX_DEPTH} levels deep.")
    if isinstance(value, dict):
        for member in value.values():
            _check(member, depth + 1)
    elif isinstance(value, list):
        for member in value:
            _check(member, depth + 1)
    elif isinstance(value, str):
        for placeholder in _PLACEHOLDER.findall(value):
            path = placeholder.strip()
            if not all(path.split(".")):
                raise InvalidMapping(f"`input_mapping`: '{path:.100}' is not a path of a field.")


def build_input(mapping: dict[str, Any] | None, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the run's input.

    Raises `MissingInput` if the example lacks a named field, and `InputTooLarge`.
    """
    if mapping is None:
        return inputs
    built: dict[str, Any] = _Values(inputs).replace(mapping)
    return built


class _Values:
    """The values of an example that a mapping inserts, each looked up and measured once."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        self._inputs = inputs
        self._rows: dict[str, tuple[Any, int]] = {}
        self._size = 0

    def replace(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.replace(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.replace(member) for member in value]
        if not isinstance(value, str):
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        if whole is not None:
            return self._insert(whole[1])
        return _PLACEHOLDER.sub(lambda match: _as_text(self._insert(match[1])), value)

    def _insert(self, placeholder: str) -> Any:
        path = placeholder.strip()
        if path not in self._rows:
            value = _look_up(self._inputs, path)
            self._rows[path] = value, len(dumps(value))
        value, size = self._rows[path]
        self._size += size
        if self._size > MAX_INPUT_BYTES:
            raise InputTooLarge
        return value


def _look_up(inputs: dict[str, Any], path: str) -> Any:
    value: Any = inputs
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name, _MISSING)
        elif isinstance(value, list) and len(name) < 10 and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else _MISSING
        else:
            value = _MISSING
        if value is _MISSING:
            raise MissingInput(f"The inputs of the example have no `{path:.200}`.")
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps_text(value)
