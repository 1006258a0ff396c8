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


def _object_converter(key: str) -> Callable[[Any], Value]:
    """Return a converter that keeps the bytes of an object and puts other values under `key`."""

    def convert(value: Any) -> Value:
        if isinstance(value, str):
            text = value.strip()
            if text[:1] == "{" and text[-1:] == "}" and (raw := _parse_raw(text)) is not None:
                return raw
            if text[:1] in {"[", '"'} and (raw := _parse_raw(text)) is not None:
                return {key: raw}
        return value if isinstance(value, dict) else {key: value}

    return convert


def _parse_raw(text: str) -> msgspec.Raw | None:
    """The text as raw JSON; None if it is not JSON."""
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


def _convert_message_list(value: Any) -> Value:
    parsed = parse_json(value)
    return {
        "messages": [messages.normalize_message(item) for item in parsed]
        if isinstance(parsed, list)
        else parsed
    }


def _convert_input_events(value: Any) -> Value:
    parsed = messages.from_event_log(parse_json(value), outputs=False)
    return {"messages": parsed} if parsed else None


def _convert_output_events(value: Any) -> Value:
    parsed = messages.from_event_log(parse_json(value), outputs=True)
    return {"messages": parsed} if parsed else None


def _convert_parts(value: Any) -> Value:
    parsed = parse_json(value)
    if isinstance(parsed, list):
        return {"messages": [message for item in parsed for message in messages.from_parts(item)]}
    return (
        {"messages": messages.from_parts(parsed)} if isinstance(parsed, dict) else {"input": parsed}
    )


def _convert_messages_before_answer(value: Any) -> Value:
    """The messages before the first assistant message."""
    parsed = parse_json(value)
    if not isinstance(parsed, list):
        return None
    roles = [item.get("role") if isinstance(item, dict) else None for item in parsed]
    before = parsed[: roles.index("assistant")] if "assistant" in roles else parsed
    return _convert_parts(before) if before else None


def _convert_documents(value: Any) -> Value:
    parsed = parse_json(value)
    return (
        {"documents": messages.normalize_documents(parsed)}
        if isinstance(parsed, list)
        else {"output": parsed}
    )


def _convert_embeddings(value: Any) -> Value:
    """The texts without the vectors."""
    parsed = [item.get("embedding", item) if isinstance(item, dict) else item for item in value]
    return {"input": [item.get("text") if isinstance(item, dict) else item for item in parsed]}


def _parse_items(value: Any) -> Any:
    """Parse a list whose items are JSON texts, as the AI SDK sends values and vectors."""
    items = parse_json(value)
    return [_parse_item(item) for item in items] if isinstance(items, list) else items


def _parse_item(item: Any) -> Any:
    """Parse JSON text of any kind, also of a string; other text is returned unchanged."""
    if not isinstance(item, str):
        return item
    try:
        return orjson.loads(item)
    except orjson.JSONDecodeError:
        return item


CONVERTERS: Mapping[str, Callable[[Any], Value]] = {
    "object": _object_converter("input"),
    "input": _object_converter("input"),
    "output": _object_converter("output"),
    "list": _convert_message_list,
    "messages": lambda value: {"messages": [messages.normalize_message(item) for item in value]},
    "parts": _convert_parts,
    "messages_before_answer": _convert_messages_before_answer,
    "input_events": _convert_input_events,
    "output_events": _convert_output_events,
    "answer": lambda value: {"output": parse_json(value)},
    "query": lambda value: {"query": value},
    "documents": _convert_documents,
    "embeddings": _convert_embeddings,
    "value": lambda value: {"input": _parse_item(value)},
    "values": lambda value: {"input": _parse_items(value)},
    "embedding": lambda value: {"embedding": parse_json(value)},
    "embedding_list": lambda value: {"embeddings": _parse_items(value)},
    "prompts": lambda value: {"prompts": parse_json(value)},
}
