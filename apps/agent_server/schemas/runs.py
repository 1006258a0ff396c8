"""Requests for runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from apps.agent_server import errors
from apps.agent_server.schemas.base import (
    Body,
    CheckpointKey,
    CheckpointReference,
    Flag,
    JSONObject,
    Query,
    as_list,
    parse_checkpoint_id,
    to_snake_case,
)
from apps.agent_server.statuses import MultitaskStrategy
from apps.core.errors import Invalid

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
Nodes = Literal["*"] | list[str]
MAX_DELAY_SECONDS = 366 * 24 * 3600
MAX_BATCH_RUNS = 1_000

_REFERENCES = frozenset(
    (
        *("thread_id", "run_id", "graph_id", "assistant_id"),
        *("checkpoint_id", "checkpoint_ns", "checkpoint_map"),
    )
)
"""Fields of `configurable` that the platform sets for each run."""


class RunConfig(Body):
    model_config = ConfigDict(extra="allow", frozen=True)

    tags: list[str] | None = None
    recursion_limit: int | None = Field(None, ge=1)
    configurable: JSONObject = {}

    @property
    def has_settings(self) -> bool:
        """Whether `configurable` has settings, which a `context` next to it could contradict.

        A `RemoteGraph` also passes on what is no setting: its thread, and within a run the
        references and caller of that run and LangGraph's internal fields.
        """
        return any(
            name not in _REFERENCES
            and not name.startswith(("__", "langgraph_"))
            and not (name == "user_id" and value == "")  # every run has it
            for name, value in self.configurable.items()
        )


class CommandBody(Body):
    """A command that resumes or redirects a run instead of giving it input."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        # Null is a valid value of `resume`.
        return data

    @model_validator(mode="before")
    @classmethod
    def _has_valid_targets(cls, data: Any) -> Any:
        if isinstance(data, dict):
            goto, update = data.get("goto"), data.get("update")
            targets = goto if isinstance(goto, list) else [goto]
            if goto is not None and not all(map(_is_target, targets)):
                raise ValueError("goto must be a node's name, {node, input}, or a list of these")
            if update is not None and not isinstance(update, dict) and not _is_pairs(update):
                raise ValueError("update must be an object, or a list of [key, value] pairs")
        return data


def _is_target(value: Any) -> bool:
    return isinstance(value.get("node") if isinstance(value, dict) else value, str)


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    )


class RunBody(Body):
    """A run to create."""

    verbatim_fields = frozenset({"input", "command"})

    assistant_id: str = Field(min_length=1, max_length=255)
    input: Any = None
    command: CommandBody | None = None
    config: RunConfig = RunConfig()
    context: JSONObject | None = None
    metadata: JSONObject = {}
    checkpoint: CheckpointReference | None = None
    checkpoint_id: UUID | None = None
    stream_mode: Annotated[list[StreamMode], BeforeValidator(as_list)] = ["values"]
    stream_subgraphs: bool = False
    stream_resumable: bool = False
    interrupt_before: Nodes | None = None
    interrupt_after: Nodes | None = None
    multitask_strategy: MultitaskStrategy = MultitaskStrategy.ENQUEUE
    if_not_exists: Literal["reject", "create"] = "reject"
    on_disconnect: Literal["continue", "cancel"] = "continue"
    on_completion: Literal["delete", "keep"] = "delete"
    after_seconds: float = Field(0, ge=0, le=MAX_DELAY_SECONDS, allow_inf_nan=False)
    durability: Literal["sync", "async", "exit"] = "async"
    checkpoint_during: bool | None = None
    webhook: str | None = None
    feedback_keys: list[str] | None = None

    @model_validator(mode="after")
    def _has_config_or_context(self) -> Self:
        if self.context and self.config.has_settings:
            raise errors.ConfigAndContext
        return self

    @property
    def kwargs(self) -> JSONObject:
        """The run's `kwargs` column, without the merged `config` and `context`."""
        command = self.command.model_dump() if self.command is not None else None
        return {
            "input": self.input,
            "command": command,
            "checkpoint": self.base,
            "stream_mode": self.stream_mode or ["values"],
            "interrupt_before": self.interrupt_before,
            "interrupt_after": self.interrupt_after,
            "webhook": self.webhook,
            "feedback_keys": self.feedback_keys,
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

    @property
    def checkpoint_keys(self) -> list[CheckpointKey]:
        """The checkpoints that the run refers to, in the order in which the graph host does."""
        reference = self.checkpoint or CheckpointReference()
        if self.checkpoint_id is not None:
            key = CheckpointKey("checkpoint_id", self.checkpoint_id, reference.checkpoint_ns)
            return [key, *reference.keys[1:]]
        if reference.checkpoint_id is None:
            configured = self.config.configurable.get("checkpoint_id")
            if configured:
                field = "config.configurable.checkpoint_id"
                return [CheckpointKey(field, parse_checkpoint_id(field, configured), "")]
        return reference.keys

    def check_checkpoint_thread(self, thread_id: UUID) -> None:
        """Raise `Invalid` if the run starts from a checkpoint of another thread."""
        if self.checkpoint is not None:
            self.checkpoint.check_thread(thread_id)


class BatchedRun(RunBody):
    """A run of a batch. Python clients send `thread_id` here; JavaScript clients use camelCase."""

    thread_id: UUID | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_snake_case(cls, data: Any) -> Any:
        return to_snake_case(data)

    @classmethod
    def parse_list(cls, raw: bytes) -> list[Self]:
        """Parse and validate the list; an empty one is `Invalid`."""
        bodies = cls.read(raw)
        if not isinstance(bodies, list) or not 1 <= len(bodies) <= MAX_BATCH_RUNS:
            raise Invalid(f"A batch is a list of 1 to {MAX_BATCH_RUNS} runs.")
        return [cls.check(body) for body in bodies]


class RunsToCancel(Body):
    """The runs to cancel: some runs of a thread, or all runs with a status."""

    thread_id: UUID | None = None
    run_ids: list[UUID] | None = Field(None, min_length=1, max_length=1_000)
    status: Literal["pending", "running", "all"] | None = None

    @model_validator(mode="after")
    def _selects_runs(self) -> Self:
        if self.status is None and (self.thread_id is None or self.run_ids is None):
            raise ValueError("Give thread_id and run_ids, or status.")
        return self


RunField = Literal[
    "run_id",
    "thread_id",
    "assistant_id",
    "created_at",
    "updated_at",
    "status",
    "metadata",
    "kwargs",
    "multitask_strategy",
]


class RunListQuery(Query):
    limit: int = Field(10, ge=1, le=1000)
    offset: int = Field(0, ge=0, le=2**31)
    status: str | None = None
    select: list[RunField] = []


class CancelRunsQuery(Query):
    action: Literal["interrupt", "rollback"] = "interrupt"

    @field_validator("action", mode="before")
    @classmethod
    def _is_known(cls, action: str) -> str:
        if action not in {"interrupt", "rollback"}:
            raise Invalid("action: must be 'interrupt' or 'rollback'")
        return action


class CancelRunQuery(CancelRunsQuery):
    """`wait` delays the response until the run has stopped."""

    wait: Flag = False


class JoinQuery(Query):
    cancel_on_disconnect: Flag = False


class JoinStreamQuery(JoinQuery):
    stream_mode: list[str] = []
