"""Bedrock Converse: blocks without a type, and the reply under `output.message`.

Source: the `ContentBlock` of the service model `bedrock-runtime` in `botocore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.formats.anthropic import REDACTED
from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import has_failed, tool_call_block
from apps.tracing.messages.types import (
    AI,
    AUDIO,
    FILE,
    IMAGE,
    TEXT,
    THINKING,
    VIDEO,
    BlockParser,
    MessagePart,
    MessageSource,
    Piece,
    ToolResult,
)
from apps.tracing.messages.values import as_text, first_string, string


def find_messages(payload: dict[str, Any]) -> MessageSource | None:
    """Return the message of a response."""
    output = payload.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    return MessageSource([message], ("output",), AI) if isinstance(message, dict) else None


def _media_shape(key: str, kind: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        inner = block.get(key)
        if not isinstance(inner, dict) or "source" not in inner:
            return None
        source = inner["source"]
        if isinstance(source, dict) and isinstance(text := source.get("text"), str):
            return (MessagePart(TEXT, text),)
        part = parse_media(inner, kind)
        return None if part is None else (part,)

    return parse


def _call_shape(block: dict[str, Any]) -> Sequence[Piece] | None:
    call = block.get("toolUse")
    return tool_call_block(call) if isinstance(call, dict) else None


def _result_shape(block: dict[str, Any]) -> Sequence[Piece] | None:
    result = block.get("toolResult")
    if not isinstance(result, dict):
        return None
    call_id = string(result.get("toolUseId"))
    return (ToolResult(call_id, "", result.get("content"), has_failed(result)),)


def _json_shape(block: dict[str, Any]) -> Sequence[Piece] | None:
    return (MessagePart("json", as_text(block["json"])),) if len(block) == 1 else None


def _reasoning_shape(block: dict[str, Any]) -> Sequence[Piece] | None:
    reasoning = block.get("reasoningContent")
    if not isinstance(reasoning, dict):
        return None
    inner = reasoning.get("reasoningText")
    text = first_string(inner if isinstance(inner, dict) else reasoning, ("text",))
    return (MessagePart(THINKING, text or REDACTED),)


def _guard_shape(block: dict[str, Any]) -> Sequence[Piece] | None:
    content = block.get("guardContent")
    text = content.get("text") if isinstance(content, dict) else None
    if isinstance(text, dict) and isinstance(text.get("text"), str):
        return (MessagePart(TEXT, text["text"]),)
    return None


SHAPES: dict[str, BlockParser] = {
    "toolUse": _call_shape,
    "toolResult": _result_shape,
    "reasoningContent": _reasoning_shape,
    "guardContent": _guard_shape,
    "cachePoint": lambda _: (),
    "image": _media_shape("image", IMAGE),
    "audio": _media_shape("audio", AUDIO),
    "video": _media_shape("video", VIDEO),
    "document": _media_shape("document", FILE),
    "json": _json_shape,
}
