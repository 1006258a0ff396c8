"""What clients may ask for, checked once for views and consumers alike.

Unknown fields are ignored and null means absent, because clients of every age send both. A field
that is understood but cannot be honoured yet is refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from apps.agent_server import errors
from apps.agent_server.statuses import MultitaskStrategy, ThreadStatus
from apps.core.errors import Invalid
from apps.core.json import loads

StreamMode = Literal[
    "values",
    "updates",
    "messages",
    "messages-tuple",
    "events",
    "debug",
    "tasks",
    "checkpoints",
    "custom",
]
STREAM_MODES: frozenset[str] = frozenset(get_args(StreamMode))
JSONObject = dict[str, Any]
Nodes = Literal["*"] | list[str]
LONGEST_DELAY_SECONDS = 366 * 24 * 3600

B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """A JSON object; `parse` is the way in."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The checked body; `Invalid` says in one sentence what is wrong with it."""
        return cls.check(read_json(raw))

    @classmethod
    def check(cls, data: Any) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise _as_invalid(error) from None


def read_json(raw: bytes) -> Any:
    try:
        return loads(raw)
    except ValueError:
        raise Invalid("Invalid JSON in request body") from None


def _as_invalid(error: ValidationError) -> Invalid:
    problems = [
        {"field": ".".join(map(str, problem["loc"])), "message": problem["msg"]}
        for problem in error.errors(include_url=False, include_input=False)
    ]
    first = problems[0]
    where = f"{first['field']}: " if first["field"] else ""
    return Invalid(f"{where}{first['message']}", problems)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class RunConfig(Body):
    model_config = ConfigDict(extra="allow", frozen=True)

    tags: list[str] | None = None
    recursion_limit: int | None = Field(None, ge=1)
    configurable: JSONObject = {}


class CommandBody(Body):
    """What a run does instead of taking input."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # `resume` may be null, and that is an answer.
        return data


class CheckpointReference(Body):
    checkpoint_id: UUID | None = None
    checkpoint_ns: str = ""
    checkpoint_map: JSONObject | None = None


class RunBody(Body):
    """A run to create."""

    assistant_id: str = Field(min_length=1, max_length=255)
    input: Any = None
    command: CommandBody | None = None
    config: RunConfig = RunConfig()
    context: JSONObject | None = None
    metadata: JSONObject = {}
    checkpoint: CheckpointReference | None = None
    checkpoint_id: UUID | None = None
    stream_mode: Annotated[list[StreamMode], BeforeValidator(_as_list)] = ["values"]
    stream_subgraphs: bool = False
    stream_resumable: bool = False
    interrupt_before: Nodes | None = None
    interrupt_after: Nodes | None = None
    multitask_strategy: MultitaskStrategy = MultitaskStrategy.ENQUEUE
    if_not_exists: Literal["reject", "create"] = "reject"
    on_disconnect: Literal["continue", "cancel"] = "continue"
    on_completion: Literal["delete", "keep"] = "delete"
    after_seconds: float = Field(0, ge=0, le=LONGEST_DELAY_SECONDS, allow_inf_nan=False)
    durability: Literal["sync", "async", "exit"] = "async"
    checkpoint_during: bool | None = None
    webhook: Any = None

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        if self.webhook is not None:
            raise errors.NotOffered("webhook")
        if self.context and self.config.configurable:
            raise errors.ConfigAndContext
        return self

    @property
    def kwargs(self) -> JSONObject:
        """What the run's row keeps of it; the merged `config` and `context` join it there."""
        command = self.command.model_dump() if self.command is not None else None
        return {
            "input": self.input,
            "command": command,
            "checkpoint": self.base,
            "stream_mode": self.stream_mode or ["values"],
            "interrupt_before": self.interrupt_before,
            "interrupt_after": self.interrupt_after,
            "webhook": None,
            "feedback_keys": None,
            "subgraphs": self.stream_subgraphs,
            "resumable": self.stream_resumable,
            "checkpoint_during": self.checkpoint_during,
            "durability": "exit" if self.checkpoint_during is False else self.durability,
        }

    @property
    def base(self) -> JSONObject | None:
        """The checkpoint to start from; None for the thread's head."""
        reference = self.checkpoint.model_dump(mode="json") if self.checkpoint else {}
        if self.checkpoint_id is not None:
            reference["checkpoint_id"] = str(self.checkpoint_id)
        return reference if reference.get("checkpoint_id") else None


class NewThread(Body):
    thread_id: UUID | None = None
    metadata: JSONObject = {}
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: Any = None
    supersteps: Any = None

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        for name in ("ttl", "supersteps"):
            if getattr(self, name):
                raise errors.NotOffered(name)
        return self


class ThreadChanges(Body):
    metadata: JSONObject = {}
    ttl: Any = None

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        if self.ttl is not None:
            raise errors.NotOffered("ttl")
        return self


class Page(Body):
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0)


SortOrder = Literal["asc", "desc"]


class AssistantCount(Body):
    metadata: JSONObject = {}
    graph_id: str | None = None
    name: str | None = None


class AssistantSearch(AssistantCount, Page):
    sort_by: Literal["assistant_id", "created_at", "updated_at", "name", "graph_id"] = "created_at"
    sort_order: SortOrder = "desc"
    select: (
        list[
            Literal[
                "assistant_id",
                "graph_id",
                "name",
                "description",
                "config",
                "context",
                "created_at",
                "updated_at",
                "metadata",
                "version",
            ]
        ]
        | None
    ) = None


ThreadField = Literal[
    "thread_id",
    "created_at",
    "updated_at",
    "state_updated_at",
    "metadata",
    "config",
    "status",
    "values",
    "interrupts",
]


class ThreadCount(Body):
    metadata: JSONObject = {}
    values: JSONObject = {}
    status: ThreadStatus | None = None


class ThreadSearch(ThreadCount, Page):
    ids: list[UUID] | None = None
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] = (
        "updated_at"
    )
    sort_order: SortOrder = "desc"
    select: list[ThreadField] | None = None
    extract: Any = None

    @model_validator(mode="after")
    def _can_be_honoured(self) -> Self:
        if self.extract:
            raise errors.NotOffered("extract")
        return self


class HistoryBody(Body):
    limit: int = Field(1, ge=1, le=1000)
    before: JSONObject | str | None = None
    metadata: JSONObject | None = None
    checkpoint: CheckpointReference | None = None

    @property
    def before_id(self) -> str | None:
        """The checkpoint's id, from whichever of the forms that clients send."""
        before = self.before
        if isinstance(before, dict):
            inner = before.get("configurable")
            before = (inner if isinstance(inner, dict) else before).get("checkpoint_id")
        if not before:
            return None
        try:
            return str(UUID(str(before)))
        except ValueError:
            raise Invalid("before: must name a checkpoint by its UUID") from None


class StateBody(Body):
    checkpoint: CheckpointReference
    subgraphs: bool = False


class StateUpdate(Body):
    values: JSONObject | list[Any] | None = None
    as_node: str | None = None
    checkpoint: CheckpointReference | None = None
    checkpoint_id: UUID | None = None
