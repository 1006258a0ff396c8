"""Records calls of models as runs, and computes what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from apps.core.ids import uuid7
from apps.core.json import dumps
from apps.ingest.decoders import IngestRequest
from apps.ingest.operations import RunOperation, WireRun
from apps.ingest.services.ingest_runs import ingest
from apps.playground.setting import Setting
from apps.providers.adapters.base import without_none
from apps.providers.adapters.openai import build_message, build_tool
from apps.providers.catalogue import PROVIDERS
from apps.providers.chat import ChatMessage, ChatRequest, ChatUsage, ModelSettings
from apps.trace_store.dotted_order import format_segment
from apps.trace_store.pricing import price_map
from apps.trace_store.pricing.costs import compute_costs

PROJECT_NAME = "playground"
"""The project of calls by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A call of a model as a run: a root, or a child of the root run of an experiment."""

    workspace_id: UUID
    setting: Setting
    chat: ChatRequest
    started_at: datetime
    letter: str = ""
    """Empty for calls that no column of the playground makes."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further metadata of the run."""
    run_name: str = ""
    """Empty for the name of the prompt."""
    run_id: UUID = field(default_factory=uuid7)
    project_id: UUID | None = None
    """None for the project `playground`."""
    parent: tuple[UUID, str] | None = None
    """The id and the dotted order of the parent, the root of the trace."""

    @property
    def name(self) -> str:
        if self.run_name:
            return self.run_name
        prompt = self.setting.prompt
        return prompt.repo if prompt is not None else self.setting.name or "Playground"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallResult:
    """The end of a call; with an error, `message` is the part of the reply that came."""

    ended_at: datetime
    message: ChatMessage | None = None
    finish_reason: str | None = None
    usage: ChatUsage | None = None
    first_token_at: datetime | None = None
    error: str | None = None


def build_start(record: CallRecord) -> RunOperation:
    """Return the create of the call's run."""
    run = _wire_run(record)
    run.name = record.name
    run.start_time = record.started_at.isoformat()
    run.inputs = _raw({"messages": [build_message(message) for message in record.chat.messages]})
    return RunOperation(is_update=False, run=run)


def build_end(record: CallRecord, result: ModelCallResult) -> RunOperation:
    """Return the update with which the call's run ends."""
    run = _wire_run(record)
    run.end_time = result.ended_at.isoformat()
    if result.message is not None:
        run.outputs = _raw(_build_outputs(result))
    if result.first_token_at is not None:
        event = {"name": "new_token", "time": result.first_token_at.isoformat()}
        run.events = _raw([event])
    if result.error is not None:
        run.error = _raw(result.error)
    return RunOperation(is_update=True, run=run)


def _build_outputs(result: ModelCallResult) -> dict[str, Any]:
    assert result.message is not None  # noqa: S101  (checked by the caller)
    message = build_message(result.message)
    if result.message.thinking:
        message["reasoning_content"] = result.message.thinking
    choice = {"index": 0, "finish_reason": result.finish_reason, "message": message}
    outputs: dict[str, Any] = {"choices": [choice]}
    if result.usage is not None:
        outputs["usage_metadata"] = result.usage.as_json()
    return outputs


def _wire_run(record: CallRecord) -> WireRun:
    dotted_order, trace_id, parent_id = _position(record)
    return WireRun(
        id=record.run_id,
        trace_id=trace_id,
        parent_run_id=parent_id,
        dotted_order=dotted_order,
        session_id=record.project_id,
        session_name=None if record.project_id is not None else PROJECT_NAME,
        run_type="llm",
        # Also in the update: usage is priced by the metadata of the same operation.
        extra=_raw(build_extra(record)),
    )


def _position(record: CallRecord) -> tuple[str, UUID, UUID | None]:
    segment = format_segment(record.started_at, record.run_id)
    if record.parent is None:
        return segment, record.run_id, None
    parent_id, dotted_order = record.parent
    return f"{dotted_order}.{segment}", parent_id, parent_id


def build_extra(record: CallRecord) -> dict[str, Any]:
    model, prompt = record.chat.model, record.setting.prompt
    metadata: dict[str, Any] = {
        "ls_provider": PROVIDERS[model.provider].tracing_name,
        "ls_model_name": model.model,
        "ls_model_type": "chat",
        **record.metadata,
    }
    if record.letter:
        metadata["playground_letter"] = record.letter
    metadata |= without_none(
        {
            "ls_temperature": model.temperature,
            "ls_max_tokens": model.max_tokens,
            "ls_stop": model.stop or None,
        }
    )
    if prompt is not None:
        metadata |= {"lc_hub_repo": prompt.repo, "lc_hub_commit_hash": prompt.commit}
    return {"metadata": metadata, "invocation_params": _invocation_params(record.chat)}


def _invocation_params(chat: ChatRequest) -> dict[str, Any]:
    params: dict[str, Any] = msgspec.to_builtins(chat.model)
    if chat.tools:
        params["tools"] = [build_tool(tool) for tool in chat.tools]
    if chat.response_schema is not None:
        params["response_schema"] = chat.response_schema
    return params


def store(workspace_id: UUID, operations: list[RunOperation]) -> dict[UUID, str]:
    """Store the operations; return the reasons of refused ones by run id.

    Raises the errors of `ingest`, such as `UsageLimitExceeded`.
    """
    size = sum(
        len(bytes(operation.run.inputs)) + len(bytes(operation.run.outputs))
        for operation in operations
    )
    request = IngestRequest(operations, protocol="platform", size=size)
    return {UUID(error.item): str(error) for error in ingest(workspace_id, request).rejected}


def compute_cost(
    workspace_id: UUID, model: ModelSettings, usage: ChatUsage | None, started_at: datetime
) -> float | None:
    """The price of a call in dollars; None if tokens or prices are not known."""
    if usage is None:
        return None
    provider = PROVIDERS[model.provider].tracing_name
    names = {"ls_model_name": model.model}
    entry = price_map.find_entry(workspace_id, names, provider, started_at)
    if entry is None:
        return None
    columns = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    details = {
        "prompt_token_details": usage.input_token_details,
        "completion_token_details": usage.output_token_details,
    }
    return float(compute_costs(entry, columns, details)["total_cost"])


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(dumps(value))
