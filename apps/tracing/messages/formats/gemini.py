"""Gemini: `contents` with `parts` that have no type; keys in camel or snake case.

Source: `types.py` of the `google-genai` package, and its REST form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import tool_call_block
from apps.tracing.messages.types import (
    AI,
    FILE,
    HUMAN,
    ROLES,
    TEXT,
    THINKING,
    BlockParser,
    MessagePart,
    MessageSource,
    Piece,
    RawMessage,
    ToolCall,
    ToolResult,
)
from apps.tracing.messages.values import as_text, first_present, first_string, only_dicts, string

_SYSTEM_KEYS = ("systemInstruction", "system_instruction")
_TEXT_PART_KEYS = frozenset(
    {"text", "thought", "thoughtSignature", "thought_signature", "citations", "cache_control"}
)
_CONFIG_KEYS = ("config", "generationConfig", "generation_config")


def read_message(item: dict[str, Any], default_role: str) -> RawMessage | None:
    """Return the message of a content with `parts`."""
    parts = item.get("parts")
    if not isinstance(parts, list):
        return None
    name = item.get("role")
    if name is None:
        return RawMessage(default_role, parts)
    role = ROLES.get(name.lower()) if isinstance(name, str) and len(name) < 20 else None
    return None if role is None else RawMessage(role, parts)


def find_messages(payload: dict[str, Any]) -> MessageSource | None:
    """Return the messages of `contents`, `candidates`, or a single `content`."""
    candidates = only_dicts(payload.get("candidates"))
    if contents := only_dicts([candidate.get("content") for candidate in candidates]):
        return MessageSource(contents, ("candidates",), default_role=AI)
    for key, role in (("content", AI), ("new_message", HUMAN), ("newMessage", HUMAN)):
        content = payload.get(key)
        if isinstance(content, dict) and isinstance(content.get("parts"), list):
            return MessageSource([content], (key,), default_role=role)
    items = payload.get("contents")
    if isinstance(items, str | dict):
        items = [items]
    if not isinstance(items, list) or not items:
        return None
    texts_as_messages = [
        {"parts": [{"text": item}]} if isinstance(item, str) else _as_content(item)
        for item in items
    ]
    system, keys = _find_system(payload)
    return MessageSource(texts_as_messages, ("contents", *keys), HUMAN, system)


def _as_content(item: Any) -> Any:
    """Return a part that stands for a whole content as one."""
    is_part = isinstance(item, dict) and "parts" not in item and "role" not in item
    return {"parts": [item]} if is_part else item


def _find_system(payload: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    for key in _SYSTEM_KEYS:
        if payload.get(key):
            return _parts_of(payload[key]), (key,)
    for key in _CONFIG_KEYS:
        config = payload.get(key)
        if isinstance(config, dict):
            system = first_present(config, _SYSTEM_KEYS)
            if system:
                return _parts_of(system), ()
    return None, ()


def _parts_of(system: Any) -> Any:
    return system.get("parts", system) if isinstance(system, dict) else system


def _text_shape(block: dict[str, Any]) -> Sequence[Piece] | None:
    if not block.keys() <= _TEXT_PART_KEYS or not isinstance(text := block.get("text"), str):
        return None
    return (MessagePart(THINKING if block.get("thought") is True else TEXT, text),) if text else ()


def _call_shape(key: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        call = block.get(key)
        return tool_call_block(call) if isinstance(call, dict) else None

    return parse


def _response_shape(key: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        response = block.get(key)
        if not isinstance(response, dict):
            return None
        content = response.get("response")
        failed = False
        if isinstance(content, dict) and len(content) == 1:
            # The SDKs wrap what a function returns or raises.
            failed = "error" in content
            content = first_present(content, ("result", "output", "error")) or content
        return (
            ToolResult(string(response.get("id")), string(response.get("name")), content, failed),
        )

    return parse


def _media_shape(key: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        part = parse_media({key: block[key]}, FILE)
        return None if part is None else (part,)

    return parse


def _code_shape(key: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        code = block.get(key)
        return (ToolCall("code_execution", as_text(code)),) if code else ()

    return parse


def _code_result_shape(key: str) -> BlockParser:
    def parse(block: dict[str, Any]) -> Sequence[Piece] | None:
        result = block.get(key)
        if not isinstance(result, dict):
            return None
        outcome = first_string(result, ("outcome",))
        failed = outcome not in ("", "OUTCOME_OK")
        return (ToolResult("", "code_execution", result.get("output"), failed),)

    return parse


SHAPES: dict[str, BlockParser] = {
    "functionCall": _call_shape("functionCall"),
    "function_call": _call_shape("function_call"),
    "functionResponse": _response_shape("functionResponse"),
    "function_response": _response_shape("function_response"),
    "inlineData": _media_shape("inlineData"),
    "inline_data": _media_shape("inline_data"),
    "fileData": _media_shape("fileData"),
    "file_data": _media_shape("file_data"),
    "executableCode": _code_shape("executableCode"),
    "executable_code": _code_shape("executable_code"),
    "codeExecutionResult": _code_result_shape("codeExecutionResult"),
    "code_execution_result": _code_result_shape("code_execution_result"),
    "text": _text_shape,
}
