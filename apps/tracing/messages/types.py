"""Chat messages in one shape, and the pieces that parsers of formats produce."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

MAX_MESSAGES = 1_000
"""A longer list keeps its first and last messages."""
FIRST_MESSAGES = 50
"""The messages that a longer list keeps from its beginning."""
MAX_BLOCKS = 500
"""Content blocks of one message; the others are counted as one JSON part."""
MAX_DEPTH = 4
"""Content blocks in tool results in content blocks, and so on; deeper content is JSON."""

SYSTEM, HUMAN, AI, TOOL = "system", "human", "ai", "tool"
ROLES: Mapping[str, str] = {
    "human": HUMAN,
    "user": HUMAN,
    "ai": AI,
    "assistant": AI,
    "model": AI,
    "system": SYSTEM,
    "developer": SYSTEM,
    "tool": TOOL,
    "function": TOOL,
}

TEXT, THINKING, JSON = "text", "thinking", "json"
IMAGE, AUDIO, VIDEO, FILE = "image", "audio", "video", "file"
MEDIA_KINDS = frozenset({IMAGE, AUDIO, VIDEO, FILE})
DOWNLOADABLE_TYPES = frozenset(
    {"application/pdf", "application/json", "application/octet-stream", "text/csv", "text/plain"}
)


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A piece of a message: text, thinking, JSON, or a medium."""

    kind: str
    """`text`, `thinking`, `json`, `image`, `audio`, `video` or `file`."""
    text: str
    """The text; for a medium its address (`data:`, `https:`, `s3:` …), empty if only named."""
    mime_type: str = ""
    name: str = ""
    """The name or provider's id of a medium."""

    @property
    def is_medium(self) -> bool:
        return self.kind in MEDIA_KINDS

    @property
    def is_embedded(self) -> bool:
        """Whether the medium is in the message itself."""
        return self.text.startswith("data:")

    @property
    def is_link(self) -> bool:
        return self.text.startswith(("https://", "http://"))

    @property
    def is_downloadable(self) -> bool:
        """Whether a browser can save the medium without rendering it as a page."""
        return self.is_embedded and (self.kind != FILE or self.mime_type in DOWNLOADABLE_TYPES)

    @property
    def size(self) -> int:
        """Return the bytes of an embedded medium, which base64 lengthens by a third."""
        return (len(self.text) - self.text.find(",") - 1) * 3 // 4 if self.is_embedded else 0

    @property
    def label(self) -> str:
        """Return what stands for the medium in a line of text."""
        return f"[{self.kind}: {self.name}]" if self.name else f"[{self.kind}]"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a model, with the tool's result if the messages contain it."""

    name: str
    arguments: str
    """Text or compact JSON."""
    id: str = ""
    result: tuple[MessagePart, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call as recorded; its content is not parsed yet."""

    tool_call_id: str
    name: str
    content: Any
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    """`system`, `human`, `ai` or `tool`."""
    parts: tuple[MessagePart, ...]
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """The tool call that this message is the result of."""
    failed: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.parts and not self.tool_calls

    @property
    def text(self) -> str:
        """Return the texts without thinking and JSON."""
        return "\n".join(part.text for part in self.parts if part.kind == TEXT)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return what makes two recorded copies of a message equal: all but results."""
        calls = tuple((call.id, call.name, call.arguments) for call in self.tool_calls)
        return self.role, self.parts, self.tool_call_id, calls


@dataclass(slots=True)  # not frozen: ingest makes one for each payload, in a third of the time
class RawMessage:
    """A message whose role and fields are known and whose content is not parsed yet."""

    role: str
    content: Any
    name: str = ""
    tool_calls: Any = None
    tool_call_id: str = ""
    failed: bool = False
    pieces: tuple[Piece, ...] = ()
    """Pieces from fields next to the content, such as `reasoning_content`."""
    is_item: bool = False
    """Whether it is one of several items that form a model's reply."""


@dataclass(slots=True)
class MessageSource:
    """The messages of a payload, not parsed yet."""

    items: Sequence[Any]
    """The messages as recorded."""
    keys: tuple[str, ...] = ()
    """The keys of the payload from which they and the system prompt come."""
    default_role: str = HUMAN
    """The role of items that state none."""
    system: Any = None
    """The content of a system prompt that stands next to the messages."""


Piece: TypeAlias = MessagePart | ToolCall | ToolResult
BlockParser: TypeAlias = Callable[[dict[str, Any]], Sequence[Piece] | None]
"""Parses a content block; None if it is not of the format, empty if it has nothing to show."""


def part_json(part: MessagePart) -> dict[str, str]:
    """Return the part as APIs have it; `text` of a medium is its address."""
    result = {"type": part.kind, "text": part.text}
    if part.mime_type:
        result["mime_type"] = part.mime_type
    if part.name:
        result["name"] = part.name
    return result
