"""Which messages a transcript shows once, and how much of their texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from apps.tracing.messages import Message, MessagePart

MAX_TEXT = 20_000
"""The characters of a text that a transcript shows; the run has them all."""


def message_key(message: Message) -> Any:
    """Return what copies of one message have in common: clients drop thinking, for example."""
    ids = tuple(call.id or (call.name, call.arguments) for call in message.tool_calls)
    if ids:
        return message.role, ids
    text = message.text
    return (message.role, text) if text else message.identity


def cut_messages(messages: Sequence[Message]) -> list[Message]:
    """Cut long texts and leave out messages that say nothing."""
    return [
        replace(message, parts=cut_parts(message.parts))
        for message in messages
        if not message.is_empty
    ]


def cut_parts(parts: Iterable[MessagePart]) -> tuple[MessagePart, ...]:
    return tuple(
        part if part.is_medium else replace(part, text=cut_text(part.text)) for part in parts
    )


def cut_text(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT:,} more characters in the run"
