"""Finds the text that stands for a payload's messages in a list.

Ingest calls this for each run: the messages before the last are not read.
"""

from __future__ import annotations

from typing import Any

from apps.core.json import dumps_text
from apps.tracing.messages.conversation import build_messages, find_messages, read_message
from apps.tracing.messages.documents import parse_documents
from apps.tracing.messages.types import Message, RawMessage

_MAX_ITEMS = 4
"""The last items of a reply that are read for one with something to say."""
_PLAIN_ROLES = ("user", "human", "assistant", "ai", "tool")
_TEXT_TYPES = ("text", "input_text", "output_text", None)  # no set: a recorded type may be a list


def find_excerpt(payload: Any) -> str | None:
    """Return the text of the last message, its tool calls, or the first document; else None."""
    if isinstance(payload, dict) and (text := _plain_excerpt(payload) or _resume_excerpt(payload)):
        return text
    source, _ = find_messages(payload, only_last=True)
    if source is None:
        return _document_excerpt(payload)
    for item in source.items[: -_MAX_ITEMS - 1 : -1]:
        raw = read_message(item, source.default_role)
        if raw is not None and (text := _raw_excerpt(raw)):
            return text
    return None


def _plain_excerpt(payload: dict[str, Any]) -> str | None:
    """Return the text of the last message in its commonest form, a role with a text."""
    items = payload.get("messages")
    if not isinstance(items, list) or not items or not isinstance(last := items[-1], dict):
        return None
    content = last.get("content")
    role = last.get("role") or last.get("type")
    return content if isinstance(content, str) and role in _PLAIN_ROLES else None


def _resume_excerpt(payload: dict[str, Any]) -> str | None:
    """Return the answer to an interrupt, of a run that continues with LangGraph's `Command`."""
    inner = payload.get("input")
    command = inner if isinstance(inner, dict) else payload
    if "resume" not in command or "goto" not in command or command["resume"] is None:
        return None
    answer = command["resume"]
    if isinstance(answer, dict) and isinstance(answer.get("decisions"), list):
        kinds = [item.get("type") for item in answer["decisions"] if isinstance(item, dict)]
        answer = ", ".join(kind for kind in kinds if isinstance(kind, str)) or answer
    return f"Resume: {answer if isinstance(answer, str) else dumps_text(answer)}"


def _raw_excerpt(raw: RawMessage) -> str:
    content = raw.content
    if isinstance(content, str) and content:
        return content
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") in _TEXT_TYPES:
                text = block.get("text")
                if isinstance(text, str) and text and not block.get("thought"):
                    return text
        if content and isinstance(content[-1], dict) and (text := _result_excerpt(content[-1])):
            return text
    return " ".join(filter(None, map(message_excerpt, build_messages(raw))))


def _result_excerpt(block: dict[str, Any]) -> str:
    """Return the text of a tool result in its commonest forms, without parsing the message."""
    value = block.get("content") or block.get("output")
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("text")
    elif isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else ""


def message_excerpt(message: Message) -> str:
    """Return the message as a line of text: its text, else calls, else what it has instead."""
    if text := message.text:
        return text
    if message.tool_calls:
        return " ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    labels = [part.label if part.is_medium else part.text for part in message.parts]
    return " ".join(labels)


def _document_excerpt(payload: Any) -> str | None:
    items = payload.get("documents") if isinstance(payload, dict) else None
    documents = parse_documents(items[:1]) if isinstance(items, list) else []
    return documents[0].text if documents else None
