"""Commands of the thread-centric protocol."""

from __future__ import annotations

from typing import Any, Self
from uuid import UUID

from pydantic import Field, model_validator

from apps.agent_server.schemas.base import (
    NUL_ESCAPE,
    Body,
    JSONObject,
    restore_fields,
    to_snake_case,
)
from apps.agent_server.schemas.runs import STREAM_MODES, RunBody
from apps.core.errors import Invalid
from apps.core.json import loads_exact, read_json


class MalformedParameters(Invalid):
    """The parameters of a command are invalid."""


_VERBATIM_PARAMS = frozenset({"input", "responses", "response", "update"})


def read_command(raw: bytes) -> Any:
    """Parse a command; inputs and responses of its parameters keep U+0000."""
    command = read_json(raw)
    if NUL_ESCAPE not in raw or not isinstance(command, dict):
        return command
    exact = loads_exact(raw).get("params")
    return command | {"params": restore_fields(command.get("params"), exact, _VERBATIM_PARAMS)}


class CommandParameters(Body):
    """The parameters of a command."""

    @classmethod
    def check(cls, data: Any) -> Self:
        try:
            return super().check(data)
        except Invalid as error:
            raise MalformedParameters(error.detail, error.errors) from None


class ChannelRun(CommandParameters, RunBody):
    """A run that emits events by channel and whose stream can be resumed."""

    @property
    def kwargs(self) -> JSONObject:
        return {**super().kwargs, "channels": True}


class RunStart(CommandParameters):
    """The parameters of `run.start`. The JavaScript client uses camelCase."""

    assistant_id: str
    input: Any = None
    config: JSONObject = {}
    metadata: JSONObject = {}
    multitask_strategy: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_snake_case(cls, data: Any) -> Any:
        return to_snake_case(data)


class InterruptResponse(Body):
    """The response to one interrupt; `response` may be null."""

    interrupt_id: str
    namespace: list[str] = []
    response: Any = None


class InputRespond(CommandParameters):
    """Responses to interrupts, and changes of the run that continues."""

    responses: list[InterruptResponse] = Field(min_length=1)
    update: JSONObject | None = None
    goto: Any = None
    config: JSONObject = {}
    metadata: JSONObject = {}

    @model_validator(mode="before")
    @classmethod
    def _wrap_single_response(cls, data: Any) -> Any:
        if isinstance(data, dict) and "responses" not in data:
            return {**data, "responses": [data]}
        return data


class StateGet(CommandParameters):
    namespace: list[str] = []
    keys: list[str] | None = None


class ListCheckpoints(CommandParameters):
    namespace: list[str] = []
    limit: int = Field(10, ge=1, le=1000)
    before: UUID | None = None


class StateFork(CommandParameters):
    checkpoint_id: UUID
    input: Any = None
    config: JSONObject = {}


def build_run(
    assistant_id: str,
    *,
    config: JSONObject,
    metadata: JSONObject,
    strategy: str | None = None,
    **fields: Any,
) -> ChannelRun:
    """Build the run that a command starts; a checkpoint in `config` makes it a fork."""
    configurable = dict(config.get("configurable") or {})
    checkpoint_id = fields.pop("checkpoint_id", None) or configurable.pop("checkpoint_id", None)
    return ChannelRun.check(
        {
            **fields,
            "assistant_id": assistant_id,
            "config": {**config, "configurable": configurable},
            "metadata": metadata,
            "checkpoint_id": checkpoint_id,
            "multitask_strategy": strategy,
            "if_not_exists": "create",
            "stream_mode": sorted(STREAM_MODES),
            "stream_subgraphs": True,
            "stream_resumable": True,
        }
    )
