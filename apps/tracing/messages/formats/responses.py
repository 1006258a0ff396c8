"""OpenAI Responses: a reply is a list of items, of which each is a content block here.

Source: `types/responses/response_input_item_param.py` of the `openai` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.formats.chat_completions import media_block, text_block
from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import (
    parse_tool_call,
    tool_call_block,
    tool_result_block,
)
from apps.tracing.messages.types import (
    AI,
    FILE,
    HUMAN,
    IMAGE,
    TEXT,
    TOOL,
    BlockParser,
    MessagePart,
    MessageSource,
    Piece,
    RawMessage,
    ToolCall,
    ToolResult,
)
from apps.tracing.messages.values import as_text, first_present, first_string, string

_HOSTED_CALLS = frozenset(
    {
        "apply_patch_call",
        "code_interpreter_call",
        "computer_call",
        "file_search_call",
        "local_shell_call",
        "mcp_approval_request",
        "mcp_call",
        "shell_call",
        "web_search_call",
    }
)
_RESULT_ITEMS = frozenset(
    {
        "apply_patch_call_output",
        "computer_call_output",
        "custom_tool_call_output",
        "function_call_output",
        "local_shell_call_output",
        "shell_call_output",
    }
)
_MODEL_ITEMS = _HOSTED_CALLS | {
    "custom_tool_call",
    "function_call",
    "image_generation_call",
    "reasoning",
}
_SILENT_ITEMS = frozenset({"compaction", "item_reference", "mcp_list_tools"})
_HOSTED_ARGUMENTS = ("arguments", "action", "queries", "code", "operation")
_HOSTED_RESULTS = ("error", "output", "outputs", "results")


def read_message(item: dict[str, Any]) -> RawMessage | None:
    """Return the message of an item that is no message, such as a call or its output."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return None
    if kind in _MODEL_ITEMS or kind in _SILENT_ITEMS:
        return RawMessage(AI, [item], is_item=True)
    if kind in _RESULT_ITEMS:
        return RawMessage(TOOL, [item])
    return None


def is_reply_item(item: dict[str, Any]) -> bool:
    """Return whether the item may be one of several that form one reply."""
    kind = item.get("type")
    if kind == "message":
        return item.get("role") == "assistant"
    return isinstance(kind, str) and kind in _MODEL_ITEMS


def find_messages(payload: dict[str, Any]) -> MessageSource | None:
    """Return the items of `input`, which may be a text, or of `output`."""
    system = payload.get("instructions")
    system = system if isinstance(system, str | list) else None
    keys = ("instructions",) if system else ()
    text = payload.get("input")
    if isinstance(text, str) and (system or "model" in payload):
        return MessageSource([{"role": HUMAN, "content": text}], ("input", *keys), HUMAN, system)
    for key, role in (("output", AI), ("input", HUMAN)):
        items = payload.get(key)
        if isinstance(items, list) and items:
            # The response repeats the instructions of the request.
            is_request = key == "input"
            return MessageSource(
                items, (key, *keys), default_role=role, system=system if is_request else None
            )
    return None


def _hosted_call(block: dict[str, Any]) -> Sequence[Piece]:
    """A call of a tool that the provider runs, which carries its result."""
    call = parse_tool_call(block)
    if call.name == "tool":
        name = string(block.get("type")).removesuffix("_call")
        call = ToolCall(name, as_text(first_present(block, _HOSTED_ARGUMENTS)), call.id)
    result = first_present(block, _HOSTED_RESULTS)
    if result in (None, []):
        return (call,)
    failed = block.get("error") is not None or block.get("status") == "failed"
    return call, ToolResult(call.id, call.name, result, failed)


def _generated_image(block: dict[str, Any]) -> Sequence[Piece]:
    part = parse_media({"base64": block.get("result")}, IMAGE)
    prompt = first_string(block, ("revised_prompt",))
    if part is None:
        return (ToolCall("image_generation", prompt, string(block.get("id"))),)
    return (MessagePart(TEXT, prompt), part) if prompt else (part,)


BLOCKS: dict[str, BlockParser] = {
    **dict.fromkeys(_HOSTED_CALLS, _hosted_call),
    **dict.fromkeys(_RESULT_ITEMS, tool_result_block),
    **dict.fromkeys(_SILENT_ITEMS, lambda _: ()),
    "function_call": tool_call_block,
    "custom_tool_call": tool_call_block,
    "image_generation_call": _generated_image,
    "input_text": text_block,
    "output_text": text_block,
    "summary_text": text_block,
    "reasoning_text": text_block,
    "input_image": media_block(IMAGE),
    "input_file": media_block(FILE),
    "computer_screenshot": media_block(IMAGE),
}
