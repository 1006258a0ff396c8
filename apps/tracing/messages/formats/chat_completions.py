"""OpenAI Chat Completions, and the many servers that speak it.

Source: `types/chat/chat_completion_message_param.py` of the `openai` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import tool_call_block
from apps.tracing.messages.types import (
    AI,
    AUDIO,
    FILE,
    IMAGE,
    ROLES,
    TEXT,
    THINKING,
    VIDEO,
    BlockParser,
    MessagePart,
    MessageSource,
    Piece,
    RawMessage,
)
from apps.tracing.messages.values import first_string, only_dicts, string

_CONTENT_KEYS = ("content", "tool_calls", "function_call", "audio", "refusal", "reasoning_content")


def read_message(item: dict[str, Any]) -> RawMessage | None:
    """Return the message of an item with a `role`."""
    name = item.get("role")
    role = ROLES.get(name.lower()) if isinstance(name, str) and len(name) < 20 else None
    if role is None or not any(key in item for key in _CONTENT_KEYS):
        return None
    calls = item.get("tool_calls") or item.get("toolCalls")
    if not calls and isinstance(call := item.get("function_call"), dict):
        calls = [{"function": call}]
    return RawMessage(
        role,
        item.get("content"),
        name=string(item.get("name")),
        tool_calls=calls,
        tool_call_id=first_string(item, ("tool_call_id", "toolCallId")),
        failed=item.get("is_error") is True or item.get("status") == "error",
        pieces=tuple(_extra_pieces(item)),
    )


def _extra_pieces(item: dict[str, Any]) -> Sequence[Piece]:
    """Return what stands next to `content`: reasoning, a refusal, spoken audio, images."""
    pieces: list[Piece] = []
    if reasoning := first_string(item, ("reasoning_content", "reasoning")):
        pieces.append(MessagePart(THINKING, reasoning))
    if refusal := first_string(item, ("refusal",)):
        pieces.append(MessagePart(TEXT, refusal))
    if isinstance(audio := item.get("audio"), dict):
        if transcript := first_string(audio, ("transcript",)):
            pieces.append(MessagePart(TEXT, transcript))
        if (part := parse_media(audio, AUDIO)) is not None:
            pieces.append(part)
    images = [parse_media(image, IMAGE) for image in only_dicts(item.get("images"))]
    return [*pieces, *(part for part in images if part is not None)]


def find_messages(payload: dict[str, Any]) -> MessageSource | None:
    """Return the messages of `choices`; the oldest completions have only a text."""
    items = []
    for choice in only_dicts(payload.get("choices")):
        message = choice.get("message") or choice.get("delta")
        if message is None and isinstance(choice.get("text"), str):
            message = {"role": AI, "content": choice["text"]}
        if isinstance(message, dict):
            items.append(message if "role" in message else {"role": AI, **message})
    return MessageSource(items, ("choices",), default_role=AI) if items else None


def text_block(block: dict[str, Any]) -> Sequence[Piece] | None:
    text = first_string(block, ("text", "content", "refusal"))
    if text:
        return (MessagePart(TEXT, text),)
    return () if "text" in block or "content" in block else None


def media_block(kind: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        part = parse_media(block, kind)
        return None if part is None else (part,)

    return parse


BLOCKS: dict[str, BlockParser] = {
    "text": text_block,
    "refusal": text_block,
    "image_url": media_block(IMAGE),
    "input_audio": media_block(AUDIO),
    "audio_url": media_block(AUDIO),
    "video_url": media_block(VIDEO),
    "file_url": media_block(FILE),
    "function": tool_call_block,
}
