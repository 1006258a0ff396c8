"""The Messages API of Anthropic.

A response schema is sent as a tool that the model must call, which every model supports; the
arguments of that call are the text of the reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apps.core.json import dumps
from apps.providers.adapters.base import (
    Adapter,
    ReplyParser,
    chosen_tool,
    count_of,
    dict_of,
    require_tool_call_id,
    text_of,
    without_none,
)
from apps.providers.chat import (
    Block,
    ChatEvent,
    ChatMessage,
    ChatRequest,
    ChatUsage,
    FileBlock,
    Finished,
    ImageBlock,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)
from apps.providers.errors import BadChatRequest
from apps.providers.transport import ProviderRequest

API_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096
RESPONSE_TOOL = "structured_response"
_UNSUPPORTED = ("seed", "frequency_penalty", "presence_penalty", "reasoning_effort")


class MessagesParser(ReplyParser):
    def __init__(self) -> None:
        self._usage = ChatUsage()
        self._response_index: int | None = None

    def feed(self, event: dict[str, Any]) -> Iterator[ChatEvent]:
        match event.get("type"):
            case "message_start":
                usage = dict_of(dict_of(event.get("message")).get("usage"))
                yield self._update_usage(usage)
            case "content_block_start":
                yield from self._start_block(_index(event), dict_of(event.get("content_block")))
            case "content_block_delta":
                yield from self._read_delta(_index(event), dict_of(event.get("delta")))
            case "message_delta":
                yield self._update_usage(dict_of(event.get("usage")))
                if reason := text_of(dict_of(event.get("delta")).get("stop_reason")):
                    yield Finished(reason)

    def _start_block(self, index: int, block: dict[str, Any]) -> Iterator[ChatEvent]:
        kind = block.get("type")
        if kind == "text" and (text := text_of(block.get("text"))):
            yield TextDelta(text)
        elif kind == "thinking" and (text := text_of(block.get("thinking"))):
            yield ThinkingDelta(text)
        elif kind == "tool_use":
            if block.get("name") == RESPONSE_TOOL:
                self._response_index = index
            else:
                yield ToolCallDelta(
                    index, "", text_of(block.get("id")) or None, text_of(block.get("name")) or None
                )

    def _read_delta(self, index: int, delta: dict[str, Any]) -> Iterator[ChatEvent]:
        match delta.get("type"):
            case "text_delta":
                yield TextDelta(text_of(delta.get("text")))
            case "thinking_delta":
                yield ThinkingDelta(text_of(delta.get("thinking")))
            case "signature_delta":
                yield ThinkingDelta("", text_of(delta.get("signature")))
            case "input_json_delta":
                text = text_of(delta.get("partial_json"))
                if index == self._response_index:
                    yield TextDelta(text)
                else:
                    yield ToolCallDelta(index, text)

    def _update_usage(self, usage: dict[str, Any]) -> UsageUpdate:
        """Totals of the first event, and the output tokens of later ones."""
        if "input_tokens" in usage:
            read = count_of(usage.get("cache_read_input_tokens"))
            written = count_of(usage.get("cache_creation_input_tokens"))
            details = {"cache_read": read, "cache_creation": written}
            self._usage.input_tokens = count_of(usage["input_tokens"]) + read + written
            self._usage.input_token_details = {name: n for name, n in details.items() if n}
        self._usage.output_tokens = count_of(usage.get("output_tokens"))
        return UsageUpdate(self._usage)


def _index(event: dict[str, Any]) -> int:
    return count_of(event.get("index"))


class Messages(Adapter):
    parser = MessagesParser

    def build(self, request: ChatRequest, base_url: str, key: str | None) -> ProviderRequest:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "anthropic-version": API_VERSION,
        }
        if key:
            headers["x-api-key"] = key
        url = f"{base_url.rstrip('/')}/v1/messages"
        return ProviderRequest(url, headers, dumps(_build_body(request)))


def _build_body(request: ChatRequest) -> dict[str, Any]:
    model = request.model
    for name in _UNSUPPORTED:
        if getattr(model, name) is not None:
            raise BadChatRequest(f"Anthropic's models have no `{name}`.")
    system = [message.text for message in request.messages if message.role == "system"]
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": _schema(tool.schema)}
        for tool in request.tools
    ]
    if request.response_schema is not None:
        tools.append(
            {
                "name": RESPONSE_TOOL,
                "description": "Give the final response by a call of this tool.",
                "input_schema": _schema(request.response_schema),
            }
        )
    thinking = None
    if model.thinking_budget:
        thinking = {"type": "enabled", "budget_tokens": model.thinking_budget}
    return without_none(
        {
            "model": model.model,
            "max_tokens": model.max_tokens or DEFAULT_MAX_TOKENS + (model.thinking_budget or 0),
            "system": "\n\n".join(system) or None,
            "messages": _build_messages(request.messages),
            "stream": True,
            "temperature": model.temperature,
            "top_p": model.top_p,
            "stop_sequences": model.stop or None,
            "thinking": thinking,
            "tools": tools or None,
            "tool_choice": _build_tool_choice(request, is_thinking=thinking is not None),
        }
    )


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return schema if "type" in schema else {"type": "object", **schema}


def _build_tool_choice(request: ChatRequest, *, is_thinking: bool) -> dict[str, Any] | None:
    if request.response_schema is not None:
        if request.tools or is_thinking:
            # A model that thinks cannot be forced, and one with tools may need them first.
            return {"type": "any" if not is_thinking else "auto"}
        return {"type": "tool", "name": RESPONSE_TOOL}
    if not request.tools or request.model.tool_choice is None:
        return None
    if (name := chosen_tool(request)) is not None:
        return {"type": "tool", "name": name}
    return {"type": {"required": "any"}.get(request.model.tool_choice, request.model.tool_choice)}


def _build_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Messages with alternating roles; results of tools are content of the user."""
    result: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "ai" else "user"
        content = _build_content(message)
        if result and result[-1]["role"] == role:
            result[-1]["content"] += content
        elif content:
            result.append({"role": role, "content": content})
    return result


def _build_content(message: ChatMessage) -> list[dict[str, Any]]:
    blocks = [_build_block(block) for block in message.blocks]
    if message.role == "tool":
        call_id = require_tool_call_id(message)
        return [{"type": "tool_result", "tool_use_id": call_id, "content": blocks}]
    if message.thinking and message.signature:
        thinking = {"thinking": message.thinking, "signature": message.signature}
        blocks.insert(0, {"type": "thinking", **thinking})
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]


def _build_block(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock(url=str() as url):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case ImageBlock():
            media_type = block.mime_type or "image/png"
            return {"type": "image", "source": _base64(media_type, block.data or "")}
        case FileBlock():
            return {"type": "document", "source": _base64(block.mime_type, block.data)}


def _base64(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": data}
