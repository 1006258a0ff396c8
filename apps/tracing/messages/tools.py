"""Reads tool calls and results, whose keys differ by format while their shape does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.types import Piece, ToolCall, ToolResult
from apps.tracing.messages.values import as_text, decoded, first_present, first_string

_CALL_ID_KEYS = ("call_id", "toolCallId", "toolUseId", "id")
_NAME_KEYS = ("name", "toolName", "tool_name")
_ARGUMENT_KEYS = ("arguments", "args", "input", "parameters")
_RESULT_ID_KEYS = (
    "tool_use_id",
    "tool_call_id",
    "toolCallId",
    "toolUseId",
    "call_id",
    "id",
)
_RESULT_KEYS = ("content", "output", "result", "response", "error")
_FAILED_STATUSES = frozenset({"error", "failed", "incomplete"})


def parse_tool_call(call: dict[str, Any]) -> ToolCall:
    """Return the call of a block, or of an item of `tool_calls`."""
    inner = call.get("function") or call.get("custom")
    fields = inner if isinstance(inner, dict) else call
    return ToolCall(
        name=first_string(fields, _NAME_KEYS) or first_string(call, _NAME_KEYS) or "tool",
        arguments=as_text(decoded(first_present(fields, _ARGUMENT_KEYS))),
        id=first_string(call, _CALL_ID_KEYS),
    )


def tool_call_block(block: dict[str, Any]) -> Sequence[Piece]:
    return (parse_tool_call(block),)


def tool_result_block(block: dict[str, Any]) -> Sequence[Piece]:
    return (
        ToolResult(
            first_string(block, _RESULT_ID_KEYS),
            first_string(block, _NAME_KEYS),
            first_present(block, _RESULT_KEYS),
            has_failed(block),
        ),
    )


def has_failed(fields: dict[str, Any]) -> bool:
    """Return whether a result states that the tool failed."""
    if fields.get("is_error") is True or fields.get("isError") is True:
        return True
    status = fields.get("status")
    return isinstance(status, str) and status in _FAILED_STATUSES
