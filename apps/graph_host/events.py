"""Converts the stream of a graph to the events of the Agent Server API."""

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
_GRAPH_MODES = {"messages-tuple": "messages", "events": "values"}


class Modes(NamedTuple):
    """The stream modes of a run: as requested, and as passed to LangGraph."""

    requested: frozenset[str]
    graph: list[str]

    @classmethod
    def parse(cls, requested: Any) -> Modes:
        """Parse a mode or a list of modes; the default is `values`."""
        names = [requested] if isinstance(requested, str) else list(requested or ["values"])
        graph = dict.fromkeys(_GRAPH_MODES.get(name, name) for name in names if name in MODES)
        return cls(frozenset(names), list(graph) or ["values"])


class Converter:
    """Converts the parts of one run's stream to events."""

    def __init__(self, modes: Modes) -> None:
        self._requested = modes.requested
        self._tuples = "messages-tuple" in modes.requested
        self._partial = PartialMessages()
        self._metadata: tuple[Any, Any] = (None, None)

    def events(self, namespace: tuple[str, ...], mode: str, data: Any) -> Iterator[Event]:
        """Yield the events of one part of the stream."""
        if mode == "messages":
            if self._tuples:
                yield _named(mode, namespace), self._message_tuple(*data)
            elif "messages" in self._requested:
                yield from self._partial.events(*data)
        elif mode in self._requested:
            if mode == "debug" and data.get("type") == "checkpoint":
                data = {**data, "payload": _with_references(data["payload"])}
            yield _named(mode, namespace), encoding.dumps(convert_interrupts(data))

    def _message_tuple(self, message: BaseMessage, metadata: dict[str, Any]) -> bytes:
        last_metadata, encoded = self._metadata
        if last_metadata is not metadata:
            encoded = encoding.fragment(metadata)
            self._metadata = metadata, encoded
        return encoding.dumps((message, encoded))


class PartialMessages:
    """The `messages` mode: each message grows in its own `messages/partial` events."""

    def __init__(self) -> None:
        self._growing: dict[str, _GrowingMessage] = {}
        self._announced: set[str] = set()

    def events(self, message: BaseMessage, metadata: dict[str, Any]) -> Iterator[Event]:
        """Yield the events of a chunk or a complete message."""
        message_id = message.id or ""
        if message_id not in self._announced:
            self._announced.add(message_id)
            yield "messages/metadata", encoding.dumps({message_id: {"metadata": metadata}})
        if isinstance(message, AIMessageChunk):
            growing = self._growing.get(message_id)
            if growing is None:
                growing = self._growing[message_id] = _GrowingMessage(message)
            else:
                growing.add(message)
            yield "messages/partial", encoding.dumps([growing.current])
        else:
            whole = (
                message_chunk_to_message(message)
                if isinstance(message, BaseMessageChunk)
                else message
            )
            yield "messages/complete", encoding.dumps([whole])


class _GrowingMessage:
    """The accumulated AI message. Plain text is appended without merging chunks, for speed."""

    def __init__(self, first: AIMessageChunk) -> None:
        self._chunk = first
        self._text = ""
        self.current = self._serialize()

    def add(self, chunk: AIMessageChunk) -> None:
        content = self.current["content"]
        if isinstance(content, str) and _is_text_only(chunk):
            self._text += str(chunk.content)
            self.current["content"] = content + str(chunk.content)
            return
        if self._text:
            self._chunk = self._chunk + AIMessageChunk(content=self._text)
            self._text = ""
        self._chunk = self._chunk + chunk
        self.current = self._serialize()

    def _serialize(self) -> dict[str, Any]:
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


def convert_interrupts(data: Any) -> Any:
    """Replace `Interrupt` objects, because orjson would encode the dataclass itself."""
    if isinstance(data, dict) and INTERRUPT in data:
        interrupts = data[INTERRUPT]
        return {
            **data,
            INTERRUPT: [
                encoding.interrupt_of_stream(item) if isinstance(item, Interrupt) else item
                for item in (interrupts or ())
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
