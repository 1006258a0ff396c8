"""Input and output of a run as pages show them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from apps.core.json import Fragment
from apps.trace_store import Payload, RunDetail
from apps.tracing import messages, offered_tools
from apps.tracing.messages import Document, Message
from apps.tracing.offered_tools import OfferedTool

INLINE_BYTES = 100_000
"""The largest payload in the page; a web worker fetches and parses larger payloads."""
RENDERED_BYTES = 2_000_000
MAX_OTHER_FIELDS = 100
MAX_FIELD_CHARACTERS = 20_000
_FIRST_MESSAGES, _LAST_MESSAGES = 2, 10
"""The messages of a long conversation that are not folded."""
_TEXT_KEYS = (
    "question",
    "query",
    "prompt",
    "text",
    "message",
    "content",
    "input",
    "output",
    "answer",
)
"""Keys of a payload whose string is its main text, in order of precedence."""


@dataclass(frozen=True)
class PayloadView:
    """A payload with the form in which the page shows it."""

    name: str
    body: Fragment | None
    messages: list[Message]
    text: str | None
    documents: list[Document] = field(default_factory=list)
    tools: Sequence[OfferedTool] = ()
    """The tools that the model was offered."""
    other_fields: Sequence[tuple[str, str]] = ()
    """The fields other than messages, documents or text, as name and text or JSON."""
    omitted_messages: int = 0
    """Messages that are not in `messages` because the list is too long."""

    @property
    def size(self) -> int:
        return len(self.body or b"")

    @property
    def is_empty(self) -> bool:
        return self.body is None or self.body in (b"null", b"{}")

    @property
    def is_rendered(self) -> bool:
        return bool(self.messages or self.documents or self.tools) or self.text is not None

    @property
    def is_inline(self) -> bool:
        return self.size <= INLINE_BYTES

    @property
    def message_groups(self) -> tuple[list[Message], list[Message], list[Message]]:
        """Return the first messages, those to fold because the conversation is long, the last."""
        if len(self.messages) <= _FIRST_MESSAGES + _LAST_MESSAGES + 2:
            return self.messages, [], []
        first, last = _FIRST_MESSAGES, len(self.messages) - _LAST_MESSAGES
        return self.messages[:first], self.messages[first:last], self.messages[last:]

    @property
    def pretty(self) -> str:
        """Return indented JSON for comparison."""
        if self.body and self.size <= INLINE_BYTES:
            # Thousands of levels, or of digits, are stored as they came.
            with suppress(ValueError, RecursionError):
                return json.dumps(json.loads(self.body), indent=2, ensure_ascii=False)
        return self.beginning

    @property
    def beginning(self) -> str:
        """Return the beginning, for browsers without JavaScript."""
        return bytes(self.body or b"")[:16_000].decode("utf-8", "ignore")


def build_payload_view(
    detail: RunDetail, payload: Payload, tools: Sequence[OfferedTool] = ()
) -> PayloadView:
    """Build the view of a run's payload; `tools` apply if the payload has none itself."""
    body = detail.json(payload)
    value = detail.value(payload) if body is not None and len(body) <= RENDERED_BYTES else None
    return build_value_view(payload.value, body, value, tools)


def build_value_view(
    name: str, body: Fragment | None, value: Any, tools: Sequence[OfferedTool] = ()
) -> PayloadView:
    """Build the view of JSON text and its value, which is None above `RENDERED_BYTES`."""
    conversation = messages.parse_conversation(value)
    container, outer = _split_container(value, conversation.nested_key)
    message_list = list(conversation.messages)
    documents = [] if message_list else messages.parse_documents(value)
    text = None if message_list or documents else messages.single_text(value)
    own_tools = offered_tools.parse_tools(container)
    view = PayloadView(
        name,
        body,
        message_list,
        text,
        documents,
        tools=own_tools or tools,
        omitted_messages=conversation.omitted,
    )
    if not view.is_rendered or text is not None:
        return view
    shown_keys = {*(offered_tools.TOOL_KEYS if own_tools else ()), *conversation.keys}
    if documents:
        shown_keys |= {"documents", "output"}
    fields = [*_list_fields(container, shown_keys), *_list_fields(outer, set())]
    return replace(view, other_fields=fields[:MAX_OTHER_FIELDS])


def build_turn_payload_view(detail: RunDetail, payload: Payload) -> PayloadView:
    """Build the view of a payload in a conversation: messages, a main text, or fields."""
    view = build_payload_view(detail, payload)
    if view.messages or view.text is not None or view.size > RENDERED_BYTES:
        return view
    value = detail.value(payload)
    if not isinstance(value, dict):
        return view
    key = next((key for key in _TEXT_KEYS if isinstance(value.get(key), str) and value[key]), None)
    fields = _list_fields(value, {key})[:MAX_OTHER_FIELDS]
    return replace(view, text=None if key is None else value[key], other_fields=fields)


def _split_container(value: Any, nested_key: str | None) -> tuple[Any, dict[str, Any]]:
    """Return the object that contains the messages, and its sibling fields."""
    if nested_key is None:
        return value, {}
    return value[nested_key], {name: field for name, field in value.items() if name != nested_key}


def _list_fields(value: Any, shown_keys: Collection[str | None]) -> list[tuple[str, str]]:
    """Return the names and values that are not shown otherwise; long values are cut."""
    if not isinstance(value, dict):
        return []
    fields = ((str(name), field) for name, field in value.items() if name not in shown_keys)
    return [(name, _format_field(field)) for name, field in fields]


def _format_field(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) <= MAX_FIELD_CHARACTERS or messages.parse_address(text) is not None:
        return text
    return f"{text[:MAX_FIELD_CHARACTERS]}…"
