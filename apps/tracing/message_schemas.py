"""JSON Schemas of a chat message and a tool definition, which schemas of clients reference."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from apps.core.json import dumps

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}

_PART: dict[str, Any] = {
    "type": "object",
    "description": "A part of a message: text, an image, or content of another type.",
    "properties": {
        "type": _TEXT,
        "text": _TEXT,
        "image_url": {
            "anyOf": [
                _TEXT,
                {
                    "type": "object",
                    "properties": {"url": _TEXT, "detail": _TEXT},
                    "required": ["url"],
                },
            ]
        },
    },
    "required": ["type"],
}
_TOOL_CALL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {"name": _TEXT, "arguments": _TEXT},
            "required": ["name", "arguments"],
        },
    },
    "required": ["id", "type", "function"],
}
_MESSAGE: dict[str, Any] = {
    "title": "Message",
    "description": "One message of a conversation with a model.",
    "type": "object",
    "properties": {
        "role": {
            "enum": ["system", "developer", "user", "assistant", "tool", "function"],
        },
        "content": {
            "anyOf": [_TEXT, {"type": "array", "items": _PART}, {"type": "null"}],
        },
        "name": _TEXT,
        "tool_calls": {"type": "array", "items": _TOOL_CALL},
        "tool_call_id": _TEXT,
    },
    "required": ["role"],
}
_TOOL: dict[str, Any] = {
    "title": "Tool definition",
    "description": "A function that a model may call.",
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "properties": {
                "name": _TEXT,
                "description": _TEXT,
                "parameters": {"type": "object", "description": "A JSON Schema."},
                "strict": {"type": ["boolean", "null"]},
            },
            "required": ["name"],
        },
    },
    "required": ["type", "function"],
}


def message_schema() -> bytes:
    return dumps({"$schema": _DRAFT, "$id": _schema_url("message"), **_MESSAGE})


def tool_schema() -> bytes:
    return dumps({"$schema": _DRAFT, "$id": _schema_url("tooldef"), **_TOOL})


def _schema_url(name: str) -> str:
    return f"{settings.API_BASE_URL}/public/schemas/v1/{name}.json"
