"""Reads span attributes: JSON in strings, and structures flattened into dotted names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from apps.ingest.otlp import rules
from apps.ingest.token_usage.vocabulary import ATTRIBUTE_RULES, NameRule

_MAX_INDEX_DIGITS = 9


def parse_json(value: Any) -> Any:
    """The object or array in a string of JSON; any other value unchanged."""
    if not isinstance(value, str) or value[:1] not in {"{", "["}:
        return value
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def parse_uuid(value: Any) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def unflatten(flat: Mapping[str, Any]) -> Any:
    """Convert `{"0.role": "user", "0.calls.1.name": …}` to lists and objects without index gaps."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        node = tree
        for name in parents:
            inner = node.get(name)
            if not isinstance(inner, dict):
                # A value that also has members is kept under an empty name.
                inner = node[name] = {} if inner is None else {"": inner}
            node = inner
        node[last] = {**node[last], "": value} if isinstance(node.get(last), dict) else value
    return _to_lists(tree)


def _to_lists(tree: dict[str, Any]) -> Any:
    node = {
        key: _to_lists(value) if isinstance(value, dict) else value for key, value in tree.items()
    }
    if node and all(_is_index(key) for key in node):
        return [node[key] for key in sorted(node, key=int)]
    return node


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) <= _MAX_INDEX_DIGITS


class AttributeReader:
    """Reads the attributes of a span and records which of them were used."""

    __slots__ = ("attributes", "flat", "rules", "usage", "used")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes
        self.used: set[str] = set()
        self.flat: dict[str, dict[str, Any]] = {}
        self.rules: set[str] = {rules.TOOL_NAME}
        self.usage: list[tuple[NameRule, str]] = []
        """The names of token counts and costs."""
        for key, value in attributes.items():
            if key in rules.RULES_BY_NAME:
                self.rules |= rules.RULES_BY_NAME[key]
            elif key in ATTRIBUTE_RULES:
                self.usage.append((ATTRIBUTE_RULES[key], key))
            elif key.startswith(rules.FLATTENED):
                prefix = next(item for item in rules.FLATTENED if key.startswith(item))
                self.flat.setdefault(prefix, {})[key[len(prefix) :]] = value

    def first_value(self, names: Sequence[str]) -> Any:
        """The value of the first name that is set; equal values of other names are marked used."""
        if names[0] not in self.rules:
            return None
        first_value = None
        for name in names:
            value = self.attributes.get(name)
            if value is None or value == "":
                continue
            if first_value is None:
                first_value = value
            if value == first_value:
                self.used.add(name)
        return first_value

    def get(self, name: str) -> Any:
        """The value of an attribute, or the structure flattened under a prefix that ends in `.`."""
        if name[-1] == ".":
            flat = self.flat.get(name)
            return None if flat is None else unflatten(flat)
        return self.attributes.get(name)

    def mark_used(self, name: str) -> None:
        if name[-1] == ".":
            self.used.update(name + suffix for suffix in self.flat.get(name, ()))
        else:
            self.used.add(name)
