"""Collects the events of a streamed reply into a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.core.json import is_too_deep, loads, storable
from apps.providers.chat import (
    ChatEvent,
    ChatMessage,
    ChatToolCall,
    ChatUsage,
    Finished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)
from apps.providers.errors import InvalidResponse

MAX_TOOL_CALLS = 128


@dataclass(slots=True)
class _PartialCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    signature: str | None = None


@dataclass(slots=True)
class ReplyCollector:
    """The reply so far; `message` is valid at any time."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    signature: str | None = None
    calls: dict[int, _PartialCall] = field(default_factory=dict)
    usage: ChatUsage | None = None
    finish_reason: str | None = None

    def add(self, event: ChatEvent) -> None:
        """Raises `InvalidResponse` for too many tool calls."""
        match event:
            case TextDelta():
                self.texts.append(event.text)
            case ThinkingDelta():
                self.thoughts.append(event.text)
                self.signature = event.signature or self.signature
            case ToolCallDelta():
                self._add_call(event)
            case UsageUpdate():
                self.usage = event.usage
            case Finished():
                self.finish_reason = event.reason

    def _add_call(self, event: ToolCallDelta) -> None:
        call = self.calls.setdefault(event.index, _PartialCall())
        if len(self.calls) > MAX_TOOL_CALLS:
            raise InvalidResponse(f"The reply has more than {MAX_TOOL_CALLS} tool calls.")
        call.id, call.name = event.id or call.id, event.name or call.name
        call.signature = event.signature or call.signature
        call.arguments.append(event.arguments)

    @property
    def is_empty(self) -> bool:
        return not self.texts and not self.thoughts and not self.calls

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def message(self) -> ChatMessage:
        """The reply; arguments that are no JSON object are kept as the text `__raw__`."""
        return ChatMessage(
            "ai",
            self.text,
            thinking="".join(self.thoughts) or None,
            signature=self.signature,
            tool_calls=[
                ChatToolCall(
                    call.id or f"call_{index}",
                    call.name or "tool",
                    dict(_parse_arguments("".join(call.arguments))),
                    call.signature,
                )
                for index, call in sorted(self.calls.items())
            ],
        )


def _parse_arguments(text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        value = loads(storable(text.encode()))
    except ValueError:
        value = None
    return value if isinstance(value, dict) and not is_too_deep(value) else {"__raw__": text}
