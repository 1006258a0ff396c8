"""The chat messages of a run, normalized from the shapes that clients record."""

from __future__ import annotations

from typing import Any

from apps.trace_store import Payload, RunDetail
from apps.tracing import messages
from apps.tracing.messages import Message, Part


def messages_json(run: RunDetail) -> list[dict[str, Any]]:
    """Return the input and output messages; empty if the payloads hold no messages."""
    results = [
        message
        for payload in (Payload.INPUTS, Payload.OUTPUTS)
        for message in messages.parse_messages(run.value(payload))
    ]
    return [_message(message) for message in results]


def _message(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "name": message.name or None,
        "content": [_part(part) for part in message.parts],
        "tool_calls": [
            {"id": call.id or None, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ],
        "tool_call_id": message.answers or None,
        "is_error": message.failed,
    }


def _part(part: Part) -> dict[str, Any]:
    return {"type": part.kind, "text": part.text}
