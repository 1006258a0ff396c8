"""The messages of a run, in one shape whatever the client recorded."""

from __future__ import annotations

from typing import Any

from apps.trace_store import Payload, RunDetail
from apps.tracing import messages
from apps.tracing.messages import Message, Part


def messages_json(run: RunDetail) -> list[dict[str, Any]]:
    """What went in and what came out; empty when the run is no conversation."""
    found = [
        message
        for payload in (Payload.INPUTS, Payload.OUTPUTS)
        for message in messages.find(run.value(payload))
    ]
    return [_message(message) for message in found]


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
