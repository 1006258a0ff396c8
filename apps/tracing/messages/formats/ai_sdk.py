"""AI SDK (Vercel), versions 4 to 6: model messages, UI messages with parts, results of calls.

Source: `content-part.ts` of `@ai-sdk/provider-utils`, `ui-messages.ts` and `generate-text` of `ai`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import has_failed, parse_tool_call, tool_call_block
from apps.tracing.messages.types import (
    AI,
    HUMAN,
    IMAGE,
    BlockParser,
    MessageSource,
    Piece,
    ToolCall,
    ToolResult,
)
from apps.tracing.messages.values import as_text, decoded, first_present, first_string, string

_RESULT_KEYS = frozenset({"finishReason", "toolCalls", "toolResults", "reasoningText", "usage"})
_ERROR_OUTPUTS = ("error-text", "error-json", "execution-denied")
_TOOL_PREFIX = "tool-"


def find_messages(payload: dict[str, Any]) -> MessageSource | None:
    """Return the messages of a `prompt`, or the reply in the result of a call."""
    system = payload.get("system")
    prompt = payload.get("prompt")
    keys = ("system",) if system else ()
    if isinstance(prompt, str) and (system or "model" in payload):
        return MessageSource([{"role": HUMAN, "content": prompt}], ("prompt", *keys), HUMAN, system)
    if isinstance(prompt, list) and prompt:
        return MessageSource(prompt, ("prompt", *keys), HUMAN, system)
    text, calls = payload.get("text"), payload.get("toolCalls")
    if not isinstance(text, str) or _RESULT_KEYS.isdisjoint(payload):
        return None
    reasoning = first_string(payload, ("reasoningText", "reasoning"))
    reply = {"role": AI, "content": text, "toolCalls": calls, "reasoning": reasoning}
    used = ("text", "toolCalls", "reasoningText", "reasoning")
    return MessageSource([reply], tuple(key for key in used if key in payload), AI)


def parse_ui_part(block: dict[str, Any], kind: str) -> Sequence[Piece] | None:
    """Parse `tool-<name>` of a UI message: a call and, in its final state, the result."""
    if "toolCallId" not in block:
        return None
    name = string(block.get("toolName")) or kind.removeprefix(_TOOL_PREFIX)
    arguments = as_text(decoded(block.get("input")))
    call = ToolCall(name, arguments, string(block.get("toolCallId")))
    state = block.get("state")
    if state == "output-error":
        return call, ToolResult(call.id, name, block.get("errorText"), failed=True)
    if "output" in block:
        return call, ToolResult(call.id, name, block["output"])
    return (call,)


def _result_block(block: dict[str, Any]) -> Sequence[Piece] | None:
    """A result: `output` with a type of its own since version 5, `result` before."""
    output = first_present(block, ("output", "result", "error"))
    failed = has_failed(block) or block.get("type") == "tool-error"
    if isinstance(output, dict) and isinstance(kind := output.get("type"), str):
        failed = failed or kind in _ERROR_OUTPUTS
        output = first_present(output, ("value", "reason"))
    call_id, name = string(block.get("toolCallId")), string(block.get("toolName"))
    return (ToolResult(call_id, name, output, failed),)


def _invocation_block(block: dict[str, Any]) -> Sequence[Piece] | None:
    """A call of a UI message of version 4."""
    invocation = block.get("toolInvocation")
    if not isinstance(invocation, dict):
        return None
    call = parse_tool_call(invocation)
    if "result" not in invocation:
        return (call,)
    return call, ToolResult(call.id, call.name, invocation["result"])


def _media_value(block: dict[str, Any]) -> Sequence[Piece] | None:
    part = parse_media(block, IMAGE)
    return None if part is None else (part,)


BLOCKS: dict[str, BlockParser] = {
    "tool-call": tool_call_block,
    "tool-result": _result_block,
    "tool-error": _result_block,
    "dynamic-tool": lambda block: parse_ui_part(block, "dynamic-tool"),
    "tool-invocation": _invocation_block,
    "image-data": _media_value,
    "file-data": _media_value,
    "image-url": _media_value,
    "step-start": lambda _: (),
}
