"""LangChain: constructors, `type` and `data`, plain dictionaries, generations, standard blocks.

Source: `langchain_core/messages/content.py` and `langchain_core/load/serializable.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import has_failed, tool_call_block, tool_result_block
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

_MESSAGE_KEYS = frozenset({"content", "tool_calls"})


def read_message(item: Any) -> RawMessage | None:
    """Return the message of an item with a constructor, a `type`, or a pair of role and text."""
    if isinstance(item, list):
        if len(item) != 2 or not isinstance(item[0], str) or not isinstance(item[1], str):
            return None
        role = ROLES.get(item[0])
        return None if role is None else RawMessage(role, item[1])
    fields = _unwrap(item)
    role = _find_role(item, fields)
    if role is None or _MESSAGE_KEYS.isdisjoint(fields):
        return None
    extra = fields.get("additional_kwargs")
    extra = extra if isinstance(extra, dict) else {}
    calls = fields.get("tool_calls") or extra.get("tool_calls")
    if not calls and isinstance(call := extra.get("function_call"), dict):
        calls = [{"function": call}]
    invalid_calls = only_dicts(fields.get("invalid_tool_calls"))
    reasoning = first_string(extra, ("reasoning_content", "reasoning"))
    return RawMessage(
        role,
        fields.get("content"),
        name=string(fields.get("name")),
        tool_calls=[*only_dicts(calls), *invalid_calls],
        tool_call_id=string(fields.get("tool_call_id")),
        failed=has_failed(fields),
        pieces=(MessagePart(THINKING, reasoning),) if reasoning else (),
    )


def find_messages(payload: dict[str, Any]) -> MessageSource | None:
    """Return the messages of `generations`, a list or a list of lists."""
    generations = payload.get("generations")
    for _ in range(3):
        if isinstance(generations, list) and generations and isinstance(generations[0], list):
            generations = generations[0]
    items = [
        generation.get("message") or {"role": AI, "content": generation.get("text")}
        for generation in only_dicts(generations)
    ]
    return MessageSource(items, ("generations",), default_role=AI) if items else None


def _unwrap(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message without the wrappers of serializers."""
    if item.get("lc") and isinstance(kwargs := item.get("kwargs"), dict):
        return kwargs
    if isinstance(data := item.get("data"), dict) and "type" in item:
        return data
    return item


def _find_role(item: dict[str, Any], fields: dict[str, Any]) -> str | None:
    for name in (fields.get("role"), fields.get("type"), item.get("type")):
        if isinstance(name, str) and (role := _role_of_class(name)):
            return role
    path = item.get("id")
    return _role_of_class(path[-1]) if isinstance(path, list) and path else None


def _role_of_class(name: Any) -> str | None:
    if not isinstance(name, str) or len(name) > 40:
        return None
    return ROLES.get(name.lower().removesuffix("chunk").removesuffix("message"))


def _media_block(kind: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        part = parse_media(block, kind)
        if part is None and isinstance(text := block.get("text"), str):
            part = MessagePart(TEXT, text)
        return None if part is None else (part,)

    return parse


def _thinking_block(block: dict[str, Any]) -> Sequence[Piece] | None:
    """Thinking under the key of any format: `reasoning`, `thinking`, `text` or `content`."""
    text = first_string(block, ("reasoning", "thinking", "text", "content"))
    if text:
        return (MessagePart(THINKING, text),)
    for key in ("summary", "content"):  # Responses
        texts = [string(item.get("text")) for item in only_dicts(block.get(key))]
        if any(texts):
            return (MessagePart(THINKING, "\n\n".join(filter(None, texts))),)
    return ()


def _non_standard_block(block: dict[str, Any]) -> Sequence[Piece] | None:
    return () if block.get("value") in (None, {}) else None


BLOCKS: dict[str, BlockParser] = {
    "image": _media_block(IMAGE),
    "audio": _media_block(AUDIO),
    "video": _media_block(VIDEO),
    "file": _media_block(FILE),
    "text-plain": _media_block(FILE),
    "media": _media_block(FILE),
    "thinking": _thinking_block,
    "reasoning": _thinking_block,
    "tool_call": tool_call_block,
    "invalid_tool_call": tool_call_block,
    "server_tool_call": tool_call_block,
    "server_tool_result": tool_result_block,
    "non_standard": _non_standard_block,
    # Parts of a streamed call, which is complete in `tool_calls`.
    "tool_call_chunk": lambda _: (),
    "server_tool_call_chunk": lambda _: (),
    "input_json_delta": lambda _: (),
}
