"""What the adapters of the provider APIs share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from apps.core.json import dumps_text
from apps.providers.chat import ChatEvent, ChatMessage, ChatRequest, ChatToolCall
from apps.providers.errors import BadChatRequest
from apps.providers.transport import ProviderRequest

MAX_COUNT = 2**31 - 1


class ReplyParser(ABC):
    """Turns the events of a provider's stream into those of `chat`. One for each reply."""

    @abstractmethod
    def feed(self, event: dict[str, Any]) -> Iterator[ChatEvent]:
        """Yield what the event says. Unknown fields and events are skipped."""


class Adapter(ABC):
    """The API of a kind of provider."""

    parser: type[ReplyParser]

    @abstractmethod
    def build(self, request: ChatRequest, base_url: str, key: str | None) -> ProviderRequest:
        """Return the HTTP request of a streamed reply. Raises `BadChatRequest`."""


def list_of_dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count_of(value: Any) -> int:
    """A number of tokens; what a provider claims beyond the columns of runs is the largest one."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return min(value, MAX_COUNT) if is_count else 0


def without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def arguments_text(call: ChatToolCall) -> str:
    return dumps_text(call.arguments)


def require_tool_call_id(message: ChatMessage) -> str:
    if not message.tool_call_id:
        raise BadChatRequest("A message of a tool needs the `tool_call_id` of its call.")
    return message.tool_call_id


def chosen_tool(request: ChatRequest) -> str | None:
    """The name of the tool that the model must call, if one is chosen by name."""
    choice = request.model.tool_choice
    if choice in {None, "auto", "none", "required"}:
        return None
    if choice not in {tool.name for tool in request.tools}:
        raise BadChatRequest("`tool_choice` must be auto, none, required or the name of a tool.")
    return choice
