"""Anthropic Messages: tool results are blocks of a user's message.

Source: `types/content_block_param.py` of the `anthropic` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.tracing.messages.media import parse_media
from apps.tracing.messages.tools import tool_call_block, tool_result_block
from apps.tracing.messages.types import (
    FILE,
    TEXT,
    THINKING,
    BlockParser,
    MessagePart,
    Piece,
)
from apps.tracing.messages.values import only_dicts, string

REDACTED = "Redacted by the provider."


def _document_block(block: dict[str, Any]) -> Sequence[Piece] | None:
    """A document is a file, or text that the request quotes."""
    source = block.get("source")
    if isinstance(source, dict):
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            return (MessagePart(TEXT, source["data"]),)
        if source.get("type") == "content":
            content = source.get("content")
            if isinstance(content, str):
                return (MessagePart(TEXT, content),)
            texts = [string(item.get("text")) for item in only_dicts(content)]
            return (MessagePart(TEXT, "\n".join(texts)),)
    part = parse_media(block, FILE)
    return None if part is None else (part,)


def _search_result_block(block: dict[str, Any]) -> Sequence[Piece]:
    texts = [string(item.get("text")) for item in only_dicts(block.get("content"))]
    head = [string(block.get("title")), string(block.get("source"))]
    return (MessagePart(TEXT, "\n".join(filter(None, [*head, *texts]))),)


def _failed_result_block(block: dict[str, Any]) -> Sequence[Piece]:
    """The result of a tool that the provider ran; its error is an object of its own."""
    content = block.get("content")
    kind = string(content.get("type")) if isinstance(content, dict) else ""
    return tool_result_block({**block, "is_error": kind.endswith("_error")})


BLOCKS: dict[str, BlockParser] = {
    "tool_use": tool_call_block,
    "server_tool_use": tool_call_block,
    "mcp_tool_use": tool_call_block,
    "tool_result": tool_result_block,
    "mcp_tool_result": tool_result_block,
    "web_search_tool_result": _failed_result_block,
    "web_fetch_tool_result": _failed_result_block,
    "code_execution_tool_result": _failed_result_block,
    "bash_code_execution_tool_result": _failed_result_block,
    "text_editor_code_execution_tool_result": _failed_result_block,
    "document": _document_block,
    "search_result": _search_result_block,
    "redacted_thinking": lambda _: (MessagePart(THINKING, REDACTED),),
}
