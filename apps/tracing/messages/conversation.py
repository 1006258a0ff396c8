"""Finds the messages of a payload, parses them, and joins tool calls with their results."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from apps.tracing.messages.blocks import is_block_list, parse_content, parse_result
from apps.tracing.messages.formats import (
    ai_sdk,
    bedrock,
    chat_completions,
    gemini,
    langchain,
    responses,
)
from apps.tracing.messages.tools import parse_tool_call
from apps.tracing.messages.types import (
    AI,
    FIRST_MESSAGES,
    HUMAN,
    MAX_BLOCKS,
    MAX_MESSAGES,
    SYSTEM,
    TOOL,
    Message,
    MessagePart,
    MessageSource,
    RawMessage,
    ToolCall,
    ToolResult,
)
from apps.tracing.messages.values import only_dicts

_FINDERS: tuple[tuple[str, Callable[[dict[str, Any]], MessageSource | None]], ...] = (
    ("generations", langchain.find_messages),
    ("choices", chat_completions.find_messages),
    ("candidates", gemini.find_messages),
    ("contents", gemini.find_messages),
    ("content", gemini.find_messages),
    ("new_message", gemini.find_messages),
    ("newMessage", gemini.find_messages),
    ("output", bedrock.find_messages),
    ("output", responses.find_messages),
    ("input", responses.find_messages),
    ("prompt", ai_sdk.find_messages),
    ("text", ai_sdk.find_messages),
)
"""By a key that a payload of the format has."""
_MESSAGE_FIELDS = frozenset({"role", "type", "parts", "lc"})
"""A payload that is itself a message has one of these."""
_SOURCE_KEYS = frozenset({"messages", "message", *_MESSAGE_FIELDS, *(key for key, _ in _FINDERS)})
"""Without one of these keys a payload has no messages, unless it nests them."""
_SINGLE_MESSAGES = (("message", AI), ("output", AI), ("input", HUMAN))
_SYSTEM_KEYS = ("system", "instructions", "systemInstruction", "system_instruction")
_NESTED_KEYS = ("input", "inputs", "state", "output", "outputs", "update", "request", "response")
"""Keys of a payload whose object may hold its messages."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a payload, tool results joined with their calls."""

    messages: Sequence[Message] = ()
    keys: tuple[str, ...] = ()
    """The keys of the object with the messages that hold them and the system prompt."""
    nested_key: str | None = None
    """The key of the payload under which that object is; None for the payload itself."""
    omitted: int = 0
    """The messages between the first and the last that a long list is cut to."""


@dataclass(slots=True)
class _Call:
    """A call that waits for its result."""

    message: int
    position: int
    call: ToolCall
    result: Message | None = field(default=None)


def parse_conversation(payload: Any) -> Conversation:
    """Return the messages of a payload; none if it has no list of messages."""
    source, nested_key = find_messages(payload)
    if source is None:
        return Conversation()
    items, omitted = source.items, 0
    if len(items) > MAX_MESSAGES:
        omitted = len(items) - MAX_MESSAGES
        items = [*items[:FIRST_MESSAGES], *items[FIRST_MESSAGES - MAX_MESSAGES :]]
    parsed: list[Message] = []
    if source.system:
        parsed += build_messages(RawMessage(SYSTEM, source.system))
    follows_reply_item = False
    for item in items:
        raw = read_message(item, source.default_role)
        if raw is None:
            continue
        is_reply_item = _is_reply_item(item)
        for message in build_messages(raw):
            if raw.is_item and message.is_empty:
                continue
            last = parsed[-1] if parsed else None
            is_continued = is_reply_item and follows_reply_item and message.role == AI
            if is_continued and last is not None and last.role == AI:
                parsed[-1] = _merge(last, message)
            else:
                parsed.append(message)
        follows_reply_item = is_reply_item
    return Conversation(join_results(parsed), source.keys, nested_key, omitted)


def parse_messages(payload: Any) -> list[Message]:
    """Return the messages of a payload; empty if it is not a list of messages."""
    return list(parse_conversation(payload).messages)


def find_messages(
    payload: Any, *, only_last: bool = False
) -> tuple[MessageSource | None, str | None]:
    """Return where the payload has its messages, and the key of the object that has them.

    `only_last` checks the last item of a list and trusts the others.
    """
    if isinstance(payload, list):
        items = _message_list(payload, HUMAN, only_last=only_last)
        return (MessageSource(items) if items else None), None
    if not isinstance(payload, dict):
        return None, None
    if (source := _find_in_object(payload, only_last=only_last)) is not None:
        return source, None
    for key in _NESTED_KEYS:
        inner = payload.get(key)
        if not isinstance(inner, dict):
            continue
        if (source := _find_in_object(inner, only_last=only_last)) is not None:
            return source, key
    return None, None


def read_message(item: Any, default_role: str = HUMAN) -> RawMessage | None:
    """Return the message of an item of a list; None if it is none."""
    if isinstance(item, dict):
        if "parts" in item and (raw := gemini.read_message(item, default_role)) is not None:
            return raw
        if "role" in item and (raw := chat_completions.read_message(item)) is not None:
            return raw
        if "type" in item and (raw := responses.read_message(item)) is not None:
            return raw
        return langchain.read_message(item)
    return langchain.read_message(item) if isinstance(item, list) else None


def build_messages(raw: RawMessage) -> list[Message]:
    """Return the message and those of the tool results in its content."""
    if raw.role == TOOL and not _is_block_content(raw.content):
        result = parse_result(raw.content)
        return [Message(TOOL, result, raw.name, (), raw.tool_call_id, raw.failed)]
    pieces = [*raw.pieces, *parse_content(raw.content)]
    calls = [parse_tool_call(call) for call in only_dicts(raw.tool_calls)[:MAX_BLOCKS]]
    call_ids = {call.id for call in calls}
    results: list[Message] = []
    parts: list[MessagePart] = []
    for piece in pieces:
        match piece:
            case ToolResult():
                answer = _result_message(piece)
                if not _attach_result(calls, answer):
                    results.append(answer)
            case ToolCall():
                # Libraries list the calls of the content once more next to it.
                if piece.id not in call_ids if piece.id else not raw.tool_calls:
                    calls.append(piece)
            case MessagePart():
                parts.append(piece)
    if results and not parts and not calls:
        return results
    message = Message(
        raw.role, tuple(parts), raw.name, tuple(calls), raw.tool_call_id, failed=raw.failed
    )
    return [message, *results] if calls else [*results, message]


def join_results(messages: Sequence[Message]) -> list[Message]:
    """Attach tool results to their calls, and remove the messages that contained them.

    A result without an id belongs to the first call of its name, or of any name if it has none,
    that has no result yet.
    """
    calls = [
        _Call(number, position, call)
        for number, message in enumerate(messages)
        for position, call in enumerate(message.tool_calls)
    ]
    if not calls:
        return list(messages)
    joined = _assign_results(calls, messages)
    updated: dict[int, list[ToolCall]] = {}
    for entry in calls:
        if entry.result is not None:
            row = updated.setdefault(entry.message, list(messages[entry.message].tool_calls))
            row[entry.position] = replace(
                entry.call, result=entry.result.parts, failed=entry.result.failed
            )
    return [
        replace(message, tool_calls=tuple(updated[number])) if number in updated else message
        for number, message in enumerate(messages)
        if number not in joined
    ]


def _assign_results(calls: Sequence[_Call], messages: Sequence[Message]) -> set[int]:
    """Set the result of each call, and return the numbers of the messages that are results."""
    by_id: dict[str, _Call] = {}
    open_calls: dict[str, deque[_Call]] = defaultdict(deque)
    for entry in calls:
        if entry.call.id:
            by_id.setdefault(entry.call.id, entry)
        open_calls[entry.call.name].append(entry)
        open_calls[""].append(entry)
    joined: set[int] = set()
    for number, message in enumerate(messages):
        if message.role != TOOL:
            continue
        if message.tool_call_id:
            call = by_id.get(message.tool_call_id)
        else:
            call = _first_open_call(open_calls[message.name], number)
        if call is not None and call.result is None:
            call.result = message
            joined.add(number)
    return joined


def _attach_result(calls: list[ToolCall], result: Message) -> bool:
    """Attach the result of a tool that the provider ran to its call in the same message."""
    for position, call in enumerate(calls):
        if call.id and call.id == result.tool_call_id and not call.result:
            calls[position] = replace(call, result=result.parts, failed=result.failed)
            return True
    return False


def _first_open_call(calls: deque[_Call], number: int) -> _Call | None:
    """Return the first call without a result that is not after the message of this number."""
    while calls and calls[0].result is not None:
        calls.popleft()
    return calls[0] if calls and calls[0].message <= number else None


def new_messages(messages: Sequence[Message], earlier: Iterable[Message]) -> Sequence[Message]:
    """Return the messages that follow the `earlier` ones, but at least the last message.

    Chat clients send the whole history with each turn.
    """
    earlier_identities = {message.identity for message in earlier}
    index = 0
    while index < len(messages) and messages[index].identity in earlier_identities:
        index += 1
    return messages[index:] if index < len(messages) else messages[-1:]


def _find_in_object(payload: dict[str, Any], *, only_last: bool) -> MessageSource | None:
    if _SOURCE_KEYS.isdisjoint(payload):
        return None
    if (items := payload.get("messages")) is not None:
        if isinstance(items, dict):
            items = [items]
        found_items: Sequence[Any] = (
            _message_list(items, HUMAN, only_last=only_last) if isinstance(items, list) else ()
        )
        if found_items:
            system, keys = _find_system(payload)
            return MessageSource(found_items, ("messages", *keys), HUMAN, system)
    if not _MESSAGE_FIELDS.isdisjoint(payload) and read_message(payload) is not None:
        return MessageSource([payload])
    for key, role in _SINGLE_MESSAGES:
        inner = payload.get(key)
        if isinstance(inner, dict) and read_message(inner, role) is not None:
            return MessageSource([inner], (key,), role)
    for key, find in _FINDERS:
        if key in payload and (source := find(payload)) is not None:
            source.items = _message_list(source.items, source.default_role, only_last=only_last)
            if source.items:
                return source
    return _find_blocks(payload)


def _find_blocks(payload: dict[str, Any]) -> MessageSource | None:
    """Return a message whose blocks a payload has without a role, as results of calls do."""
    for key, role in (("content", AI), ("output", AI), ("input", HUMAN)):
        blocks = payload.get(key)
        if isinstance(blocks, list) and all(map(_is_typed_block, blocks)) and is_block_list(blocks):
            return MessageSource([{"role": role, "content": blocks}], (key,), role)
    return None


def _is_typed_block(block: Any) -> bool:
    return isinstance(block, dict) and ("type" in block or set(block) <= {"text"})


def _find_system(payload: dict[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the system prompt that some providers take next to the messages."""
    for key in _SYSTEM_KEYS:
        system = payload.get(key)
        if system and isinstance(system, str | list):
            return system, (key,)
    return None, ()


def _message_list(items: Sequence[Any], default_role: str, *, only_last: bool) -> Sequence[Any]:
    """Return the items if all are messages, without an outer list of one; else none."""
    if len(items) == 1 and isinstance(items[0], list) and read_message(items[0]) is None:
        items = items[0]
    checked = items[-1:] if only_last else items
    is_list = all(read_message(item, default_role) is not None for item in checked)
    return items if is_list else []


def _is_reply_item(item: Any) -> bool:
    """Return whether the item is one of several that form one reply of the Responses API."""
    return isinstance(item, dict) and responses.is_reply_item(item)


def _merge(first: Message, second: Message) -> Message:
    return replace(
        first,
        parts=(*first.parts, *second.parts),
        tool_calls=(*first.tool_calls, *second.tool_calls),
    )


def _is_block_content(content: Any) -> bool:
    return isinstance(content, list) and is_block_list(content)


def _result_message(result: ToolResult) -> Message:
    return Message(
        TOOL,
        parse_result(result.content),
        result.name,
        (),
        result.tool_call_id,
        failed=result.failed,
    )
