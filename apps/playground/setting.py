"""The setting of a column as JSON: prompt, tools, response schema, model."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from apps.core.errors import AppError
from apps.core.json import MAX_DEPTH, is_too_deep, loads, storable_value
from apps.playground.errors import BadSetting
from apps.providers.chat import (
    MAX_MESSAGES,
    MAX_TOOLS,
    ChatMessage,
    ChatTool,
    ModelSettings,
    Role,
)

MAX_COLUMNS = 10
MAX_STATE_BYTES = 2_097_152
MAX_VIEW_BYTES = 4096
MAX_NAME_LENGTH = 200
LETTERS = "ABCDEFGHIJ"
_ROLES: dict[str, Role] = {
    "system": "system", "human": "human", "user": "human", "ai": "ai", "assistant": "ai",
    "placeholder": "placeholder",
}  # fmt: skip

TemplateFormat = Literal["f-string", "mustache", "none"]
ColumnLetter = Literal["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"]
T = TypeVar("T")


class PromptReference(msgspec.Struct, forbid_unknown_fields=True):
    """The prompt commit from which the column was opened."""

    repo: str
    commit: str


class AgentChoice(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The deployed agent that a column calls in place of a model."""

    slug: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
    assistant: str = ""
    """The id of an assistant; empty for the default one of the agent's first graph."""
    context: dict[str, Any] = {}
    """The configuration of the run."""


class Setting(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    messages: list[ChatMessage]
    model: ModelSettings
    name: str = ""
    prompt: PromptReference | None = None
    template_format: TemplateFormat = "f-string"
    tools: list[ChatTool] = []
    response_schema: dict[str, Any] | None = None
    agent: AgentChoice | None = None


class PromptColumn(msgspec.Struct, forbid_unknown_fields=True):
    letter: ColumnLetter
    setting: Setting


class DatasetChoice(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The examples of a run over a dataset, as the page keeps them."""

    dataset_id: str
    as_of: str | None = None
    splits: list[str] = []
    mapping: dict[str, str] | None = None


class State(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a person has in the playground."""

    columns: list[PromptColumn]
    variables: dict[str, Any] = {}
    dataset: DatasetChoice | None = None
    view: dict[str, Any] = {}


class RenderBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The prompt of a column, and values of its variables."""

    setting: Setting
    variables: dict[str, Any] = {}


class StreamBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A run of one column by hand."""

    setting: Setting
    letter: ColumnLetter = "A"
    variables: dict[str, Any] = {}
    history: list[ChatMessage] = []
    """Messages after those of the prompt: replies, and results of tools."""


def decode(body: bytes, kind: type[T]) -> T:
    """Decode and bound a JSON body. Raises `BadSetting`."""
    return convert(decode_json(body), kind)


def decode_json(body: bytes) -> Any:
    """Decode a JSON body of bounded depth. Raises `BadSetting`."""
    try:
        value = loads(body)
    except ValueError:
        raise BadSetting("The body is not valid JSON.") from None
    if is_too_deep(value, body):
        raise BadSetting(f"The JSON is nested deeper than {MAX_DEPTH} levels.")
    return value


def convert(value: Any, kind: type[T], error: type[AppError] = BadSetting) -> T:
    """Convert parsed JSON, without characters that PostgreSQL refuses. Raises the error."""
    try:
        return msgspec.convert(storable_value(value), kind)
    except (msgspec.ValidationError, ValueError, RecursionError) as problem:
        raise error(f"The request is not valid: {problem}.") from None


def message_of(role: str, text: str) -> ChatMessage:
    """Return a message of a pair, as clients send them. Raises `BadSetting`."""
    if role not in _ROLES:
        raise BadSetting(f"`messages`: '{role:.50}' is not a role.")
    return ChatMessage(_ROLES[role], text)


def check_setting(setting: Setting) -> None:
    """Raise `BadSetting` for more messages and tools than a prompt may have."""
    if len(setting.messages) > MAX_MESSAGES or len(setting.tools) > MAX_TOOLS:
        raise BadSetting(f"A prompt has at most {MAX_MESSAGES} messages and {MAX_TOOLS} tools.")
    if len(setting.name) > MAX_NAME_LENGTH:
        raise BadSetting(f"A name has at most {MAX_NAME_LENGTH} characters.")


def require_model(setting: Setting) -> None:
    """Raise `BadSetting` for a column that calls an agent."""
    if setting.agent is not None:
        raise BadSetting("The column calls an agent, not a model.")


def check_state(state: State) -> dict[str, Any]:
    """Return the state as JSON. Raises `BadSetting` if it is too large."""
    letters = [column.letter for column in state.columns]
    if len(set(letters)) != len(letters):
        raise BadSetting("Two columns have the same letter.")
    for column in state.columns:
        check_setting(column.setting)
    if len(msgspec.json.encode(state.view)) > MAX_VIEW_BYTES:
        raise BadSetting(f"`view` has at most {MAX_VIEW_BYTES} bytes.")
    content = msgspec.json.encode(state)
    if len(content) > MAX_STATE_BYTES:
        raise BadSetting(f"The columns have more than {MAX_STATE_BYTES} bytes.")
    result: dict[str, Any] = msgspec.json.decode(content)
    return result
