"""Converts attribute values to inputs and outputs of runs, one function for each form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import orjson

from apps.ingest.otlp import messages
from apps.ingest.otlp.attributes import parse_json
from apps.trace_store.json_repair import repair

Value = Any
"""A JSON value, or `msgspec.Raw` with JSON."""


def _object(key: str) -> Callable[[Any], Value]:
    """An object keeps its bytes; any other value is put under `key`."""

    def convert(value: Any) -> Value:
        if isinstance(value, str):
            text = value.strip()
            if text[:1] == "{" and text[-1:] == "}" and (raw := _raw(text)) is not None:
                return raw
            if text[:1] in {"[", '"'} and (raw := _raw(text)) is not None:
                return {key: raw}
        return value if isinstance(value, dict) else {key: value}

    return convert


def _raw(text: str) -> msgspec.Raw | None:
    """The text, if it is JSON."""
    encoded = text.encode("utf-8", "replace")
    try:
        orjson.loads(encoded)
    except ValueError:
        # Some exporters write NaN or numbers past 64 bits. Other invalid JSON stays a string.
        try:
            return msgspec.Raw(repair(encoded))
        except ValueError:
            return None
    return msgspec.Raw(encoded)


def _message_list(value: Any) -> Value:
    parsed = parse_json(value)
    return {
        "messages": [messages.normalize(item) for item in parsed]
        if isinstance(parsed, list)
        else parsed
    }


def _input_events(value: Any) -> Value:
    parsed = messages.from_event_log(parse_json(value), outputs=False)
    return {"messages": parsed} if parsed else None


def _output_events(value: Any) -> Value:
    parsed = messages.from_event_log(parse_json(value), outputs=True)
    return {"messages": parsed} if parsed else None


def _parts(value: Any) -> Value:
    parsed = parse_json(value)
    if isinstance(parsed, list):
        return {"messages": [each for item in parsed for each in messages.from_parts(item)]}
    return (
        {"messages": messages.from_parts(parsed)} if isinstance(parsed, dict) else {"input": parsed}
    )


def _messages_before_answer(value: Any) -> Value:
    """The messages before the first assistant message."""
    parsed = parse_json(value)
    if not isinstance(parsed, list):
        return None
    roles = [item.get("role") if isinstance(item, dict) else None for item in parsed]
    before = parsed[: roles.index("assistant")] if "assistant" in roles else parsed
    return _parts(before) if before else None


def _documents(value: Any) -> Value:
    parsed = parse_json(value)
    return (
        {"documents": messages.normalize_documents(parsed)}
        if isinstance(parsed, list)
        else {"output": parsed}
    )


def _embeddings(value: Any) -> Value:
    """The texts without the vectors."""
    parsed = [item.get("embedding", item) if isinstance(item, dict) else item for item in value]
    return {"input": [item.get("text") if isinstance(item, dict) else item for item in parsed]}


CONVERTERS: Mapping[str, Callable[[Any], Value]] = {
    "object": _object("input"),
    "input": _object("input"),
    "output": _object("output"),
    "list": _message_list,
    "messages": lambda value: {"messages": [messages.normalize(one) for one in value]},
    "parts": _parts,
    "messages_before_answer": _messages_before_answer,
    "input_events": _input_events,
    "output_events": _output_events,
    "answer": lambda value: {"output": parse_json(value)},
    "query": lambda value: {"query": value},
    "documents": _documents,
    "embeddings": _embeddings,
    "prompts": lambda value: {"prompts": parse_json(value)},
}
