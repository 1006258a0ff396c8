"""What a running graph streams, as the events that clients of an Agent Server know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from langchain_core.messages import AIMessageChunk, BaseMessage, BaseMessageChunk
from langchain_core.messages.utils import message_chunk_to_message
from langgraph.types import Interrupt

from . import encoding

Event = tuple[str, bytes]

INTERRUPT = "__interrupt__"
MODES = frozenset(
    (
        "values",
        "updates",
        "messages",
        "messages-tuple",
        "custom",
        "tasks",
        "checkpoints",
        "debug",
        "events",
    )
)
_OF_THE_SERVER = {"messages-tuple": "messages", "events": "values"}


class Modes(NamedTuple):
    """The stream modes of a run: as asked for, and as LangGraph is asked."""

    asked: frozenset[str]
    graph: list[str]

    @classmethod
    def of(cls, asked: Any) -> Modes:
        """From a mode, a list of modes, or nothing, which means `values`."""
        names = [asked] if isinstance(asked, str) else list(asked or ["values"])
        graph = dict.fromkeys(_OF_THE_SERVER.get(name, name) for name in names if name in MODES)
        return cls(frozenset(names), list(graph) or ["values"])


class Converter:
    """Turns the parts of one run's stream into events."""

    def __init__(self, modes: Modes) -> None:
        self._asked = modes.asked
        self._tuples = "messages-tuple" in modes.asked
        self._partial = PartialMessages()
        self._metadata: tuple[Any, Any] = (None, None)

    def events(self, namespace: tuple[str, ...], mode: str, data: Any) -> Iterator[Event]:
        """The events of one part."""
        if mode == "messages":
            if self._tuples:
                yield _named(mode, namespace), self._message_tuple(*data)
            elif "messages" in self._asked:
                yield from self._partial.events(*data)
        elif mode in self._asked:
            if mode == "debug" and data.get("type") == "checkpoint":
                data = {**data, "payload": _with_references(data["payload"])}
            yield _named(mode, namespace), encoding.dumps(with_plain_interrupts(data))

    def _message_tuple(self, message: BaseMessage, metadata: dict[str, Any]) -> bytes:
        known, encoded = self._metadata
        if known is not metadata:
            encoded = encoding.fragment(metadata)
            self._metadata = metadata, encoded
        return encoding.dumps((message, encoded))


class PartialMessages:
    """The `messages` mode: each message grows in its own `messages/partial` events."""

    def __init__(self) -> None:
        self._growing: dict[str, _Growing] = {}
        self._announced: set[str] = set()

    def events(self, message: BaseMessage, metadata: dict[str, Any]) -> Iterator[Event]:
        """The events that one chunk or one whole message causes."""
        message_id = message.id or ""
        if message_id not in self._announced:
            self._announced.add(message_id)
            yield "messages/metadata", encoding.dumps({message_id: {"metadata": metadata}})
        if isinstance(message, AIMessageChunk):
            growing = self._growing.get(message_id)
            if growing is None:
                growing = self._growing[message_id] = _Growing(message)
            else:
                growing.add(message)
            yield "messages/partial", encoding.dumps([growing.so_far])
        else:
            whole = (
                message_chunk_to_message(message)
                if isinstance(message, BaseMessageChunk)
                else message
            )
            yield "messages/complete", encoding.dumps([whole])


class _Growing:
    """An AI message so far. Plain text, the common case, is appended without merging chunks."""

    def __init__(self, first: AIMessageChunk) -> None:
        self._chunk = first
        self._text = ""
        self.so_far = self._whole()

    def add(self, chunk: AIMessageChunk) -> None:
        content = self.so_far["content"]
        if isinstance(content, str) and _is_text_only(chunk):
            self._text += str(chunk.content)
            self.so_far["content"] = content + str(chunk.content)
            return
        if self._text:
            self._chunk = self._chunk + AIMessageChunk(content=self._text)
            self._text = ""
        self._chunk = self._chunk + chunk
        self.so_far = self._whole()

    def _whole(self) -> dict[str, Any]:
        return dict(encoding.message(message_chunk_to_message(self._chunk)))


def _is_text_only(chunk: AIMessageChunk) -> bool:
    return isinstance(chunk.content, str) and not (
        chunk.tool_call_chunks
        or chunk.tool_calls
        or chunk.usage_metadata
        or chunk.response_metadata
        or chunk.additional_kwargs
    )


def _named(mode: str, namespace: tuple[str, ...]) -> str:
    return f"{mode}|{'|'.join(namespace)}" if namespace else mode


def with_plain_interrupts(data: Any) -> Any:
    """`Interrupt` is a dataclass, which JSON encoders would write their own way."""
    if isinstance(data, dict) and INTERRUPT in data:
        found = data[INTERRUPT]
        return {
            **data,
            INTERRUPT: [
                encoding.interrupt_of_stream(one) if isinstance(one, Interrupt) else one
                for one in (found or ())
            ],
        }
    return data


def _with_references(payload: dict[str, Any]) -> dict[str, Any]:
    return {
        **payload,
        "checkpoint": _reference(payload.get("config")),
        "parent_checkpoint": _reference(payload.get("parent_config")),
    }


def _reference(config: dict[str, Any] | None) -> dict[str, Any] | None:
    configurable = (config or {}).get("configurable") or {}
    if not configurable.get("checkpoint_id"):
        return None
    names = ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
    return {name: configurable[name] for name in names if configurable.get(name) is not None}
