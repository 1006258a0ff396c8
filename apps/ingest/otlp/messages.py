"""Normalizes messages of all conventions to `role`, `content`, `tool_calls`, `tool_call_id`."""

from __future__ import annotations

from typing import Any

import orjson

from apps.ingest.otlp.attributes import parse_json, unflatten

_OUTPUT_EVENTS = frozenset({"gen_ai.choice", "gen_ai.content.completion"})
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


def normalize_message(message: Any) -> Any:
    """Normalize a message of OpenLLMetry or OpenInference; others are unchanged."""
    if not isinstance(message, dict):
        return message
    if isinstance(inner := message.get("message"), dict):
        message = {**{k: v for k, v in message.items() if k != "message"}, **inner}
    normalized = dict(message)
    if isinstance(contents := normalized.pop("contents", None), list):
        normalized["content"] = [_content_block(item) for item in contents]
    elif isinstance(content := normalized.get("content"), str) and content[:2] in {"[{", '{"'}:
        normalized["content"] = parse_json(content)
    if isinstance(calls := normalized.get("tool_calls"), list):
        normalized["tool_calls"] = [_normalize_call(item) for item in calls]
    return normalized


def _content_block(block: Any) -> Any:
    inner = block.get("message_content", block) if isinstance(block, dict) else block
    if not isinstance(inner, dict):
        return inner
    image = inner.get("image")
    if inner.get("type") == "image" and isinstance(image, dict):
        url = image.get("image", image)
        return {"type": "image_url", "image_url": url if isinstance(url, dict) else {"url": url}}
    return inner


def _normalize_call(call: Any) -> Any:
    """A tool call in the form of OpenAI messages."""
    if not isinstance(call, dict):
        return call
    inner = call.get("tool_call", call)
    if not isinstance(inner, dict) or isinstance(inner.get("function"), dict):
        return {"type": "function", **inner} if isinstance(inner, dict) else inner
    other_fields = {key: value for key, value in inner.items() if key not in {"name", "arguments"}}
    function = {key: inner[key] for key in ("name", "arguments") if key in inner}
    return {"type": "function", **other_fields, "function": function}


def from_parts(message: Any) -> list[Any]:
    """Normalize a message of the newer OpenTelemetry form, whose content is a list of parts.

    Tool results become separate messages.
    """
    if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
        return [normalize_message(message)]
    blocks: list[Any] = []
    calls: list[Any] = []
    results: list[Any] = []
    for part in message["parts"]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            # LiteLLM 1.110.2 sends the text of a message with an image as the API has it.
            blocks.append({"type": "text", "text": part.get("content", part.get("text"))})
        elif kind in {"tool_call", "server_tool_call"}:
            calls.append(_tool_call(part))
        elif kind in {"tool_call_response", "server_tool_call_response"}:
            results.append(_tool_result(part))
        elif kind in {"reasoning", "thinking"}:
            blocks.append({"type": "reasoning", "reasoning": part.get("content")})
        else:
            blocks.append(part)
    normalized = {key: value for key, value in message.items() if key != "parts"}
    normalized["content"] = _join_blocks(blocks)
    if calls:
        normalized["tool_calls"] = calls
    return [*results, normalized] if blocks or calls or not results else results


def _tool_result(part: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "tool", "tool_call_id": part.get("id")}
    if "name" in part:
        message["name"] = part["name"]
    message["content"] = part.get("response", part.get("result", part.get("content")))
    return message


def _join_blocks(blocks: list[Any]) -> Any:
    """A single text as a string, anything else as blocks."""
    match blocks:
        case []:
            return ""
        case [{"type": "text", "text": str() as text}]:
            return text
    return blocks


def _tool_call(part: dict[str, Any]) -> dict[str, Any]:
    arguments = part.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else orjson.dumps(arguments, default=str).decode()
    function = {"name": part.get("name"), "arguments": arguments}
    return {"id": part.get("id"), "type": "function", "function": function}


def from_system_instructions(instructions: Any) -> list[Any]:
    """The system message from instructions: a text or a list of parts."""
    if isinstance(instructions, list):
        return from_parts({"role": "system", "parts": instructions})
    return [{"role": "system", "content": instructions}] if instructions else []


def from_event(name: str, attributes: Any) -> dict[str, Any] | None:
    """The message in a span event of the older GenAI convention, else None."""
    role = _ROLES.get(name)
    if role is None or not isinstance(attributes, dict):
        return None
    body = parse_json(attributes.get("gen_ai.event.content"))
    message: dict[str, Any] = {"role": role}
    if isinstance(body, dict):
        message |= body
    elif body is not None:
        message["content"] = body
    skipped = {"gen_ai.event.content", "gen_ai.system", "event.name", "gen_ai.provider.name"}
    fields = unflatten({key: value for key, value in attributes.items() if key not in skipped})
    if isinstance(fields, dict):
        inner = parse_json(fields.pop("message", None))
        message |= fields | (
            inner if isinstance(inner, dict) else {} if inner is None else {"content": inner}
        )
    if isinstance(message.get("message"), dict):
        message |= message.pop("message")
    if role == "tool" and "tool_call_id" not in message and "id" in message:
        message["tool_call_id"] = message.pop("id")
    message["content"] = parse_json(message.get("content"))
    calls = parse_json(message.get("tool_calls"))
    if isinstance(calls, list):
        message["tool_calls"] = [_normalize_call(call) for call in calls]
    return message


def from_event_log(log: Any, *, outputs: bool) -> list[dict[str, Any]]:
    """The messages in a list of events of the older convention, either inputs or outputs."""
    messages = []
    for event in log if isinstance(log, list) else ():
        if not isinstance(event, dict):
            continue
        name = str(event.get("event.name") or event.get("name") or "")
        if (name in _OUTPUT_EVENTS) is outputs and (message := from_event(name, event)) is not None:
            messages.append({k: v for k, v in message.items() if k != "gen_ai.message.index"})
    return messages


def is_output_event(name: str) -> bool:
    return name in _OUTPUT_EVENTS


def normalize_documents(documents: list[Any]) -> list[Any]:
    """Documents in the form of LangChain retrievers."""
    return [_normalize_document(document) for document in documents]


def _normalize_document(document: Any) -> Any:
    inner = document.get("document", document) if isinstance(document, dict) else document
    if not isinstance(inner, dict):
        return {"page_content": inner, "metadata": {}}
    metadata = parse_json(inner.get("metadata"))
    metadata = (
        dict(metadata) if isinstance(metadata, dict) else {"metadata": metadata} if metadata else {}
    )
    content = inner.get("content", inner.get("page_content"))
    other_fields = {
        k: v for k, v in inner.items() if k not in {"content", "page_content", "metadata"}
    }
    return {"page_content": content, "metadata": {**metadata, **other_fields}}
