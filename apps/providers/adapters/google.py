"""The Gemini API (`streamGenerateContent`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from apps.core.json import dumps, dumps_text, loads
from apps.providers.adapters.base import (
    Adapter,
    ReplyParser,
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
    ChatUsage,
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

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class GeminiParser(ReplyParser):
    def __init__(self) -> None:
        self._calls = 0

    def feed(self, event: dict[str, Any]) -> Iterator[ChatEvent]:
        for candidate in list_of_dicts(event.get("candidates"))[:1]:
            for part in list_of_dicts(dict_of(candidate.get("content")).get("parts")):
                yield from self._read_part(part)
            if reason := text_of(candidate.get("finishReason")):
                yield Finished(reason.lower())
        if reason := text_of(dict_of(event.get("promptFeedback")).get("blockReason")):
            yield Finished(f"blocked: {reason.lower()}")
        if isinstance(event.get("usageMetadata"), dict):
            yield UsageUpdate(_parse_usage(event["usageMetadata"]))

    def _read_part(self, part: dict[str, Any]) -> Iterator[ChatEvent]:
        signature = text_of(part.get("thoughtSignature")) or None
        if isinstance(part.get("functionCall"), dict):
            call = part["functionCall"]
            index, self._calls = self._calls, self._calls + 1
            yield ToolCallDelta(
                index,
                dumps_text(dict_of(call.get("args"))),
                text_of(call.get("id")) or f"call_{index}",
                text_of(call.get("name")) or None,
                signature,
            )
        elif text := text_of(part.get("text")):
            yield ThinkingDelta(text) if part.get("thought") is True else TextDelta(text)


def _parse_usage(usage: dict[str, Any]) -> ChatUsage:
    cached = count_of(usage.get("cachedContentTokenCount"))
    thoughts = count_of(usage.get("thoughtsTokenCount"))
    return ChatUsage(
        count_of(usage.get("promptTokenCount")),
        # Tokens of thinking are billed as output, and are not in the candidates' count.
        count_of(usage.get("candidatesTokenCount")) + thoughts,
        {"cache_read": cached} if cached else {},
        {"reasoning": thoughts} if thoughts else {},
    )


class Gemini(Adapter):
    parser = GeminiParser

    def build(self, request: ChatRequest, base_url: str, key: str | None) -> ProviderRequest:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if key:
            headers["x-goog-api-key"] = key
        model = quote(request.model.model.removeprefix("models/"), safe="")
        url = f"{base_url.rstrip('/')}/v1beta/models/{model}:streamGenerateContent?alt=sse"
        return ProviderRequest(url, headers, dumps(_build_body(request)))


def _build_body(request: ChatRequest) -> dict[str, Any]:
    if request.model.reasoning_effort is not None:
        raise BadChatRequest("Gemini has no `reasoning_effort`; use `thinking_budget`.")
    system = [{"text": m.text} for m in request.messages if m.role == "system" and m.text]
    functions = [
        {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}
        for tool in request.tools
    ]
    return without_none(
        {
            "contents": _build_contents(request.messages),
            "systemInstruction": {"parts": system} if system else None,
            "tools": [{"functionDeclarations": functions}] if functions else None,
            "toolConfig": _build_tool_config(request),
            "generationConfig": _build_generation_config(request),
        }
    )


def _build_generation_config(request: ChatRequest) -> dict[str, Any]:
    model, schema = request.model, request.response_schema
    thinking = None
    if model.thinking_budget is not None:
        thinking = {"thinkingBudget": model.thinking_budget, "includeThoughts": True}
    return without_none(
        {
            "temperature": model.temperature,
            "topP": model.top_p,
            "maxOutputTokens": model.max_tokens,
            "stopSequences": model.stop or None,
            "seed": model.seed,
            "frequencyPenalty": model.frequency_penalty,
            "presencePenalty": model.presence_penalty,
            "thinkingConfig": thinking,
            "responseMimeType": "application/json" if schema is not None else None,
            "responseJsonSchema": schema,
        }
    )


def _build_tool_config(request: ChatRequest) -> dict[str, Any] | None:
    choice = request.model.tool_choice
    if not request.tools or choice is None:
        return None
    if (name := chosen_tool(request)) is not None:
        config: dict[str, Any] = {"mode": "ANY", "allowedFunctionNames": [name]}
    else:
        config = {"mode": _MODES[choice]}
    return {"functionCallingConfig": config}


def _build_contents(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    result: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "model" if message.role == "ai" else "user"
        parts = _build_parts(message, names)
        if result and result[-1]["role"] == role:
            result[-1]["parts"] += parts
        elif parts:
            result.append({"role": role, "parts": parts})
    return result


def _build_parts(message: ChatMessage, names: dict[str, str]) -> list[dict[str, Any]]:
    if message.role == "tool":
        name = names.get(require_tool_call_id(message)) or message.name
        if not name:
            raise BadChatRequest("The result of a tool has no call before it.")
        return [{"functionResponse": {"name": name, "response": _result(message.text)}}]
    parts = [_build_block(block) for block in message.blocks]
    for call in message.tool_calls:
        part: dict[str, Any] = {"functionCall": {"name": call.name, "args": call.arguments}}
        if call.signature:
            part["thoughtSignature"] = call.signature
        parts.append(part)
    return parts


def _result(text: str) -> dict[str, Any]:
    try:
        value = loads(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"result": value}


def _build_block(block: Block) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"text": block.text}
    if isinstance(block, ImageBlock) and block.data is None:
        raise BadChatRequest("Gemini takes images as data, not by address.")
    mime_type = block.mime_type or "image/png"
    return {"inlineData": {"mimeType": mime_type, "data": block.data}}
