"""Parses recorded chat messages into one shape and finds the new messages of a turn.

Supported are LangChain's constructor form and its dictionaries (`type`), the form of model
providers (`role`), pairs of role and text, generations and choices. The content may be text,
images, thinking and tool calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from apps.core.json import dumps_text, loads

_ROLES = {
    "human": "human",
    "user": "human",
    "ai": "ai",
    "assistant": "ai",
    "model": "ai",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
MAX_MESSAGES = 400


@dataclass(frozen=True)
class MessagePart:
    """A piece of a message: `text`, `thinking`, `image`, `link` or `json`."""

    kind: str
    text: str


@dataclass(frozen=True)
class ToolCall:
    """A tool call of a model, with the tool's result if the list contains it."""

    name: str
    arguments: str
    id: str = ""
    result: tuple[MessagePart, ...] = ()
    failed: bool = False


@dataclass(frozen=True)
class Document:
    """A document of a retriever: its text and metadata."""

    text: str
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Message:
    role: str
    parts: tuple[MessagePart, ...]
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """The tool call that this message is the result of."""
    failed: bool = field(default=False)

    @property
    def is_empty(self) -> bool:
        return not self.parts and not self.tool_calls


def parse_messages(payload: Any) -> list[Message]:
    """Return the messages of a payload; empty if it is not a list of messages."""
    _, candidates = _find_messages(payload)
    results = [message for message in map(_parse_message, candidates) if message is not None]
    return _join_tool_results(results)


def message_key(payload: Any) -> str | None:
    """Return the key of a payload that holds its messages; None if the payload is the messages."""
    key, _ = _find_messages(payload)
    return key


def parse_documents(payload: Any) -> list[Document]:
    """Return the documents of a payload; empty if it is not a list of documents."""
    items = payload
    if isinstance(payload, dict):
        items = payload.get("documents", payload.get("output"))
    if not isinstance(items, list) or not items or len(items) > MAX_MESSAGES:
        return []
    results = [_parse_document(item) for item in items]
    return [document for document in results if document] if all(results) else []


def _parse_document(item: Any) -> Document | None:
    if not isinstance(item, dict):
        return None
    fields = _unwrap_fields(item)
    text = fields.get("page_content", fields.get("pageContent"))
    if not isinstance(text, str):
        return None
    metadata = fields.get("metadata")
    items = metadata.items() if isinstance(metadata, dict) else ()
    return Document(text, tuple((str(name), _as_text(value)) for name, value in items))


def single_text(payload: Any) -> str | None:
    """Return the text of a payload that is, or wraps, a single string."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict) and len(payload) == 1:
        value = next(iter(payload.values()))
        return value if isinstance(value, str) else None
    return None


def _find_messages(payload: Any) -> tuple[str | None, list[Any]]:
    """Return the payload's list of messages, if all its items are messages, and its key."""
    if not isinstance(payload, dict):
        return None, _message_list(payload) if isinstance(payload, list) else []
    if _is_message(payload):
        return None, [payload]
    for key in ("messages", "output", "input", "message"):
        inner = payload.get(key)
        if isinstance(inner, dict) and _is_message(inner):
            return key, [inner]
        if isinstance(inner, list) and (result := _message_list(inner)):
            return key, result
    if result := _generation_messages(payload):
        return "generations", result
    return "choices", _choice_messages(payload)


def _message_list(items: list[Any]) -> list[Any]:
    if len(items) == 1 and isinstance(items[0], list) and not _is_message(items[0]):
        items = items[0]
    if not items or len(items) > MAX_MESSAGES:
        return []
    return items if all(map(_is_message, items)) else []


def _generation_messages(payload: dict[str, Any]) -> list[Any]:
    generations = payload.get("generations")
    while isinstance(generations, list) and generations and isinstance(generations[0], list):
        generations = generations[0]
    if not isinstance(generations, list):
        return []
    results = [
        g.get("message") or {"role": "ai", "content": g.get("text")}
        for g in _only_dicts(generations)
    ]
    return [message for message in results if _is_message(message)]


def _choice_messages(payload: dict[str, Any]) -> list[Any]:
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return []
    results = [choice.get("message") for choice in _only_dicts(choices)]
    return [message for message in results if _is_message(message)]


def _only_dicts(items: Iterable[Any]) -> Iterable[dict[str, Any]]:
    return (item for item in items if isinstance(item, dict))


def _is_message(item: Any) -> bool:
    if isinstance(item, list):
        return len(item) == 2 and _is_text_pair(*item)
    if not isinstance(item, dict):
        return False
    fields = _unwrap_fields(item)
    return _find_role(item, fields) is not None and ("content" in fields or "tool_calls" in fields)


def _is_text_pair(role: Any, text: Any) -> bool:
    return isinstance(role, str) and role in _ROLES and isinstance(text, str)


def _unwrap_fields(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message without the wrappers of serializers."""
    if item.get("lc") and isinstance(item.get("kwargs"), dict):
        return dict(item["kwargs"])
    if isinstance(item.get("data"), dict) and "type" in item:
        return dict(item["data"])
    return item


def _find_role(item: dict[str, Any], fields: dict[str, Any]) -> str | None:
    for data in (fields.get("role"), fields.get("type"), item.get("type")):
        if isinstance(data, str):
            role = _ROLES.get(data.lower().removesuffix("messagechunk").removesuffix("message"))
            if role:
                return role
    path = item.get("id")
    if isinstance(path, list) and path and isinstance(path[-1], str):
        name = path[-1].removesuffix("Chunk").removesuffix("Message").lower()
        return _ROLES.get(name)
    return None


def _parse_message(item: Any) -> Message | None:
    if isinstance(item, list):
        return Message(_ROLES[item[0]], (MessagePart("text", item[1]),))
    fields = _unwrap_fields(item)
    role = _find_role(item, fields)
    if role is None:
        return None
    parts, calls = _parse_content(fields.get("content"))
    kwargs = fields.get("additional_kwargs")
    tool_calls = fields.get("tool_calls") or (
        kwargs.get("tool_calls") if isinstance(kwargs, dict) else None
    )
    return Message(
        role,
        tuple(parts),
        name=_string_or_empty(fields.get("name")),
        tool_calls=tuple(map(_parse_tool_call, _only_dicts(tool_calls)))
        if isinstance(tool_calls, list) and tool_calls
        else tuple(calls),
        tool_call_id=_string_or_empty(fields.get("tool_call_id")),
        failed=fields.get("status") == "error",
    )


def _string_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _parse_content(content: Any) -> tuple[list[MessagePart], list[ToolCall]]:
    if isinstance(content, str):
        return ([MessagePart("text", content)] if content else []), []
    if not isinstance(content, list):
        return ([] if content is None else [MessagePart("json", _as_text(content))]), []
    parts: list[MessagePart] = []
    calls: list[ToolCall] = []
    for block in content:
        if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_call"):
            calls.append(_parse_tool_call(block))
        else:
            parts.append(_parse_part(block))
    return parts, calls


def _parse_part(block: Any) -> MessagePart:
    if isinstance(block, str):
        return MessagePart("text", block)
    if isinstance(block, dict):
        for kind in ("text", "thinking", "reasoning"):
            if block.get("type") == kind and isinstance(block.get(kind), str):
                return MessagePart("text" if kind == "text" else "thinking", block[kind])
        if url := _image_url(block):
            return MessagePart("image" if url.startswith("data:image/") else "link", url)
    return MessagePart("json", _as_text(block))


def _image_url(block: dict[str, Any]) -> str:
    value = block.get("image_url")
    if isinstance(value, dict):
        value = value.get("url")
    if isinstance(value, str):
        return value if value.startswith(("data:image/", "https://", "http://")) else ""
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, dict) and source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return ""


def _parse_tool_call(call: dict[str, Any]) -> ToolCall:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", call.get("args", call.get("input")))
    return ToolCall(
        name=_string_or_empty(function.get("name") or call.get("name")) or "tool",
        arguments=_as_text(_decode_arguments(arguments)),
        id=_string_or_empty(call.get("id")),
    )


def _decode_arguments(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            return loads(arguments)
        except ValueError:
            return arguments
    return arguments


def _as_text(value: Any) -> str:
    """Return a string unchanged and any other value as compact JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps_text(value)


def _join_tool_results(messages: list[Message]) -> list[Message]:
    """Attach tool results to their calls, and remove the messages that contained them."""
    results = {message.tool_call_id: message for message in messages if message.tool_call_id}
    joined_ids: set[str] = set()

    def with_result(call: ToolCall) -> ToolCall:
        result = results.get(call.id)
        if result is None:
            return call
        joined_ids.add(call.id)
        return replace(call, result=result.parts, failed=result.failed)

    joined = [replace(m, tool_calls=tuple(map(with_result, m.tool_calls))) for m in messages]
    return [m for m in joined if not (m.tool_call_id and m.tool_call_id in joined_ids)]


def new_messages(messages: Sequence[Message], earlier: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that follow the `earlier` ones, but at least the last message.

    Chat clients send the whole history with each turn.
    """
    earlier_contents = {(m.role, m.parts) for m in earlier}
    index = 0
    while (
        index < len(messages) and (messages[index].role, messages[index].parts) in earlier_contents
    ):
        index += 1
    return messages[index:] if index < len(messages) else messages[-1:]
