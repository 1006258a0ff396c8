"""Chat Completions: OpenAI, Azure OpenAI, and servers that are compatible with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from apps.core.json import dumps
from apps.providers.adapters.base import (
    Adapter,
    ReplyParser,
    arguments_text,
    chosen_tool,
    count_of,
    dict_of,
    list_of_dicts,
    require_tool_call_id,
    text_of,
    without_none,
)
from apps.providers.chat import (
    Block,
    ChatEvent,
    ChatMessage,
    ChatRequest,
    ChatTool,
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

DEFAULT_AZURE_VERSION = "2024-10-21"
_ROLES = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}
_SCHEMA_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ChatCompletionsParser(ReplyParser):
    def feed(self, event: dict[str, Any]) -> Iterator[ChatEvent]:
        for choice in list_of_dicts(event.get("choices"))[:1]:
            delta = dict_of(choice.get("delta"))
            # `reasoning_content` is the field of DeepSeek and vLLM, `reasoning` of OpenRouter.
            thinking = text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning"))
            if thinking:
                yield ThinkingDelta(thinking)
            if text := text_of(delta.get("content")) or text_of(delta.get("refusal")):
                yield TextDelta(text)
            for position, call in enumerate(list_of_dicts(delta.get("tool_calls"))):
                function = dict_of(call.get("function"))
                index = call.get("index")
                yield ToolCallDelta(
                    index if isinstance(index, int) else position,
                    text_of(function.get("arguments")),
                    text_of(call.get("id")) or None,
                    text_of(function.get("name")) or None,
                )
            if reason := text_of(choice.get("finish_reason")):
                yield Finished(reason)
        if isinstance(event.get("usage"), dict):
            yield UsageUpdate(_parse_usage(event["usage"]))


def _parse_usage(usage: dict[str, Any]) -> ChatUsage:
    read = dict_of(usage.get("prompt_tokens_details"))
    written = dict_of(usage.get("completion_tokens_details"))
    details = {"cache_read": read.get("cached_tokens"), "audio": read.get("audio_tokens")}
    out = {"reasoning": written.get("reasoning_tokens"), "audio": written.get("audio_tokens")}
    return ChatUsage(
        count_of(usage.get("prompt_tokens")),
        count_of(usage.get("completion_tokens")),
        {name: count for name, value in details.items() if (count := count_of(value))},
        {name: count for name, value in out.items() if (count := count_of(value))},
    )


class ChatCompletions(Adapter):
    """The API of compatible servers; `OpenAI` and `AzureOpenAI` differ in a few fields."""

    parser = ChatCompletionsParser
    max_tokens_field = "max_tokens"

    def build(self, request: ChatRequest, base_url: str, key: str | None) -> ProviderRequest:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        headers |= self.key_headers(key) if key else {}
        return ProviderRequest(
            self.url(request, base_url), headers, dumps(self.build_body(request))
        )

    def url(self, request: ChatRequest, base_url: str) -> str:
        return f"{base_url.rstrip('/')}/chat/completions"

    def key_headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def build_body(self, request: ChatRequest) -> dict[str, Any]:
        model = request.model
        if model.thinking_budget is not None:
            raise BadChatRequest("This provider has no `thinking_budget`; use `reasoning_effort`.")
        return without_none(
            {
                "model": model.model,
                "messages": [build_message(message) for message in request.messages],
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": model.temperature,
                "top_p": model.top_p,
                self.max_tokens_field: model.max_tokens,
                "stop": model.stop or None,
                "seed": model.seed,
                "frequency_penalty": model.frequency_penalty,
                "presence_penalty": model.presence_penalty,
                "reasoning_effort": model.reasoning_effort,
                "tools": [build_tool(tool) for tool in request.tools] or None,
                "tool_choice": _build_tool_choice(request),
                "response_format": _build_response_format(request.response_schema),
            }
        )


class OpenAI(ChatCompletions):
    # `max_tokens` is refused by the models that reason.
    max_tokens_field = "max_completion_tokens"


class AzureOpenAI(OpenAI):
    def url(self, request: ChatRequest, base_url: str) -> str:
        version = request.model.api_version or DEFAULT_AZURE_VERSION
        deployment = quote(request.model.model, safe="")
        return (
            f"{base_url.rstrip('/')}/openai/deployments/{deployment}/chat/completions"
            f"?api-version={quote(version, safe='')}"
        )

    def key_headers(self, key: str) -> dict[str, str]:
        return {"api-key": key}


def build_message(message: ChatMessage) -> dict[str, Any]:
    """Return the message as Chat Completions has it, which is also the format of runs."""
    result: dict[str, Any] = {"role": _ROLES[message.role]}
    if isinstance(message.content, str):
        result["content"] = message.content
    elif message.role == "human":
        result["content"] = [_build_block(block) for block in message.content]
    else:
        result["content"] = message.text
    if message.role == "tool":
        result["tool_call_id"] = require_tool_call_id(message)
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in message.tool_calls
        ]
        result["content"] = result["content"] or None
    return result


def _build_block(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            url = block.url or f"data:{block.mime_type or 'image/png'};base64,{block.data or ''}"
            return {"type": "image_url", "image_url": {"url": url}}
        case FileBlock():
            data = f"data:{block.mime_type};base64,{block.data}"
            return {
                "type": "file",
                "file": {"filename": block.filename or "file", "file_data": data},
            }


def build_tool(tool: ChatTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _build_tool_choice(request: ChatRequest) -> Any:
    if not request.tools:
        return None
    if (name := chosen_tool(request)) is not None:
        return {"type": "function", "function": {"name": name}}
    return request.model.tool_choice


def _build_response_format(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    if schema == {"type": "object"}:
        return {"type": "json_object"}
    title = schema.get("title")
    is_name = isinstance(title, str) and _SCHEMA_NAME.fullmatch(title) is not None
    return {
        "type": "json_schema",
        "json_schema": {
            "name": title if is_name else "response",
            "schema": schema,
            "strict": _is_strict(schema),
        },
    }


def _is_strict(schema: Any) -> bool:
    """Whether every object is closed and requires all properties, as the strict mode demands."""
    if isinstance(schema, list):
        return all(_is_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        required = schema.get("required")
        names = set(dict_of(schema.get("properties")))
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or not isinstance(required, list) or not names <= set(map(str, required)):
            return False
    return all(_is_strict(value) for value in schema.values())
