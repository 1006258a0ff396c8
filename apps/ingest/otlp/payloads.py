"""Inputs and outputs from attributes: JSON texts to structure, flattened arrays to messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import orjson

from apps.ingest.otlp import messages
from apps.trace_store.json_repair import repair

Value = Any
"""A JSON value, or `msgspec.Raw` that is one."""


def parsed(value: Any) -> Any:
    """A text that holds an object or array as that, anything else as it is."""
    if not isinstance(value, str) or value[:1] not in {"{", "["}:
        return value
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def _object(key: str) -> Callable[[Any], Value]:
    """An object as it is, to the byte; anything else under a key."""

    def shape(value: Any) -> Value:
        if isinstance(value, str):
            text = value.strip()
            if text[:1] == "{" and text[-1:] == "}" and (raw := _raw(text)) is not None:
                return raw
            if text[:1] in {"[", '"'} and (raw := _raw(text)) is not None:
                return {key: raw}
        return value if isinstance(value, dict) else {key: value}

    return shape


def _raw(text: str) -> msgspec.Raw | None:
    """The text, when it is JSON."""
    encoded = text.encode("utf-8", "replace")
    try:
        orjson.loads(encoded)
    except ValueError:
        # Numbers past 64 bits, NaN: JSON for some. A text that only looks like it stays a text.
        try:
            return msgspec.Raw(repair(encoded))
        except ValueError:
            return None
    return msgspec.Raw(encoded)


def _listed(value: Any) -> Value:
    found = parsed(value)
    return {
        "messages": [messages.plain(one) for one in found] if isinstance(found, list) else found
    }


def _said(value: Any) -> Value:
    found = messages.of_event_log(parsed(value), answers=False)
    return {"messages": found} if found else None


def _answered(value: Any) -> Value:
    found = messages.of_event_log(parsed(value), answers=True)
    return {"messages": found} if found else None


def _parts(value: Any) -> Value:
    found = parsed(value)
    if isinstance(found, list):
        return {"messages": [each for one in found for each in messages.of_parts(one)]}
    return {"messages": messages.of_parts(found)} if isinstance(found, dict) else {"input": found}


def _asked(value: Any) -> Value:
    """What was said before the first answer."""
    found = parsed(value)
    if not isinstance(found, list):
        return None
    roles = [one.get("role") if isinstance(one, dict) else None for one in found]
    before = found[: roles.index("assistant")] if "assistant" in roles else found
    return _parts(before) if before else None


def _documents(value: Any) -> Value:
    found = parsed(value)
    return (
        {"documents": messages.documents(found)} if isinstance(found, list) else {"output": found}
    )


def _embeddings(value: Any) -> Value:
    """The texts; the vectors stand for nothing that a person could read."""
    found = [one.get("embedding", one) if isinstance(one, dict) else one for one in value]
    return {"input": [one.get("text") if isinstance(one, dict) else one for one in found]}


SHAPES: Mapping[str, Callable[[Any], Value]] = {
    "object": _object("input"),
    "input": _object("input"),
    "output": _object("output"),
    "list": _listed,
    "messages": lambda value: {"messages": [messages.plain(one) for one in value]},
    "parts": _parts,
    "asked": _asked,
    "said": _said,
    "answered": _answered,
    "answer": lambda value: {"output": parsed(value)},
    "query": lambda value: {"query": value},
    "documents": _documents,
    "embeddings": _embeddings,
    "prompts": lambda value: {"prompts": parsed(value)},
}
