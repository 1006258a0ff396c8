"""A chat with a model, in one shape for all providers; also the JSON of the playground's API."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

MAX_MESSAGES = 500
MAX_TOOLS = 128

Role = Literal["system", "human", "ai", "tool", "placeholder"]


class TextBlock(msgspec.Struct, tag="text", forbid_unknown_fields=True):
    text: str


class ImageBlock(msgspec.Struct, tag="image", forbid_unknown_fields=True, omit_defaults=True):
    """An image: base64 data with its type, or an address from which the provider loads it."""

    data: str | None = None
    mime_type: str | None = None
    url: str | None = None


class FileBlock(msgspec.Struct, tag="file", forbid_unknown_fields=True, omit_defaults=True):
    """A file as base64 data."""

    data: str
    mime_type: str
    filename: str | None = None


Block: TypeAlias = TextBlock | ImageBlock | FileBlock


class ChatToolCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    name: str
    arguments: dict[str, Any] = {}
    signature: str | None = None
    """A provider's proof of the thinking that led to the call; returned to it unchanged."""


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message; `content` of a `placeholder` names the variable that holds its messages."""

    role: Role
    content: str | list[Block] = ""
    thinking: str | None = None
    signature: str | None = None
    """A provider's proof of `thinking`; returned to it unchanged."""
    tool_calls: list[ChatToolCall] = []
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def blocks(self) -> list[Block]:
        if isinstance(self.content, str):
            return [TextBlock(self.content)] if self.content else []
        return self.content

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))


class ToolTarget(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where real results of a tool come from: a deployed agent by its slug, or a webhook."""

    agent: str | None = None
    url: str | None = None


class ChatTool(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call.

    A person makes its result up in `result`, or calls its `target` for one.
    """

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    result: str | None = None
    target: ToolTarget | None = None


class ModelSettings(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The model and its parameters; a parameter that is None is left to the provider."""

    provider: str
    model: str
    base_url: str | None = None
    api_version: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    thinking_budget: int | None = None
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of a tool."""


class ChatRequest(msgspec.Struct, frozen=True):
    model: ModelSettings
    messages: list[ChatMessage]
    tools: list[ChatTool] = []
    response_schema: dict[str, Any] | None = None


class ChatUsage(msgspec.Struct, omit_defaults=True):
    """Token counts as runs have them in `usage_metadata`; details are part of their total."""

    input_tokens: int = 0
    output_tokens: int = 0
    input_token_details: dict[str, int] = {}
    output_token_details: dict[str, int] = {}

    def as_json(self) -> dict[str, Any]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "input_token_details": self.input_token_details,
            "output_token_details": self.output_token_details,
        }


# Events of a streamed reply


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str
    signature: str | None = None


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of the tool call with this index; the first piece has its id and name."""

    index: int
    arguments: str = ""
    """A piece of JSON text."""
    id: str | None = None
    name: str | None = None
    signature: str | None = None


class UsageUpdate(msgspec.Struct, frozen=True):
    """The usage known so far; the last one counts."""

    usage: ChatUsage


class Finished(msgspec.Struct, frozen=True):
    reason: str


ChatEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta | UsageUpdate | Finished
