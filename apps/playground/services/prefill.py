"""Fills the playground in from a run, a prompt commit, or an example of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

import msgspec
from django.urls import reverse

from apps.core.callers import Caller
from apps.core.json import loads
from apps.core.tenancy import get_or_404
from apps.datasets.services.examples import get_example
from apps.deployments.models import Deployment
from apps.organizations.permissions import Permission
from apps.playground import errors
from apps.playground.manifests import convert_model, read_manifest
from apps.playground.services.catalogue import list_models
from apps.playground.services.saved_columns import load_share
from apps.playground.setting import AgentChoice, PromptColumn, PromptReference, Setting, State
from apps.prompts.services.lookup import OWN, find_commit, find_repository
from apps.prompts.services.lookup import read_manifest as read
from apps.providers.catalogue import PROVIDERS
from apps.providers.chat import (
    Block,
    ChatMessage,
    ChatTool,
    ChatToolCall,
    FileBlock,
    ImageBlock,
    ModelSettings,
    Role,
    TextBlock,
)
from apps.providers.client import find_keys
from apps.trace_store import Payload, RunDetail, run_store
from apps.tracing.errors import RunNotFound
from apps.tracing.messages.conversation import parse_messages
from apps.tracing.messages.types import AI, HUMAN, IMAGE, SYSTEM, THINKING, Message, MessagePart
from apps.tracing.offered_tools import parse_tools

_PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS, Payload.EXTRA, Payload.ERROR)
_PROVIDERS = {
    "openai": "openai",
    "azure": "azure_openai",
    "azure_openai": "azure_openai",
    "anthropic": "anthropic",
    "google_genai": "google",
    "google_vertexai": "google",
    "google": "google",
    "openai_compatible": "openai_compatible",
}
_PARAMETER_KEYS: Mapping[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "stop": ("stop", "stop_sequences"),
    "seed": ("seed",),
    "frequency_penalty": ("frequency_penalty",),
    "presence_penalty": ("presence_penalty",),
    "reasoning_effort": ("reasoning_effort",),
    "thinking_budget": ("thinking_budget",),
    "base_url": ("base_url",),
    "api_version": ("api_version",),
}


def _state(
    setting: Setting,
    *,
    variables: dict[str, Any] | None = None,
    recorded: dict[str, Any] | None = None,
    notices: Iterable[str] = (),
) -> dict[str, Any]:
    state = State([PromptColumn("A", setting)], variables or {})
    result: dict[str, Any] = msgspec.to_builtins(state)
    return {
        "variables": {},
        "dataset": None,
        "view": {},
        **result,
        "recorded": [recorded],
        "notices": list(dict.fromkeys(notices)),
    }


def from_share(caller: Caller, share_id: UUID) -> dict[str, Any]:
    """Return the columns of a link. Raises `PlaygroundShareNotFound`."""
    state = load_share(caller, share_id)["state"]
    recorded = [None] * len(state["columns"])
    defaults: dict[str, Any] = {"variables": {}, "dataset": None, "view": {}}
    return {**defaults, **state, "recorded": recorded, "notices": []}


def from_prompt(caller: Caller, repo: str, commit: str = "latest") -> dict[str, Any]:
    """Return a column with a prompt of the workspace.

    Raises `RepositoryNotFound`, `CommitNotFound`, `CannotPrefill`.
    """
    caller.require(Permission.PROMPTS_READ)
    repository = find_repository(caller.workspace_id, OWN, repo)
    if repository.is_directory:
        raise errors.CannotPrefill("Agents and skills are directories, not prompts.")
    row = find_commit(repository, commit)
    setting, notices = read_manifest(read(row))
    setting.name, setting.prompt = repo, PromptReference(repo, row.commit_hash)
    if not setting.model.model:
        setting.model = default_model(caller)
    return _state(setting, notices=notices)


def from_agent(caller: Caller, slug: str) -> dict[str, Any]:
    """Return a column that calls a deployed agent of the workspace. Raises `NotFound`."""
    caller.require(Permission.AGENTS_READ)
    deployments = Deployment.objects.for_workspace(caller.workspace_id).present()
    deployment = get_or_404(deployments, slug=slug)
    setting = Setting(
        [ChatMessage("human", "{message}")],
        default_model(caller),
        name=deployment.name,
        agent=AgentChoice(deployment.slug),
    )
    return _state(setting, variables={"message": ""})


def from_example(caller: Caller, example_id: UUID) -> dict[str, Any]:
    """Return a column for an example: its messages, or a message with its inputs as variables.

    Raises `ExampleNotFound`.
    """
    caller.require(Permission.DATASETS_READ)
    example = get_example(caller.workspace_id, example_id)
    inputs: dict[str, Any] = example.inputs
    messages = list(convert_messages(parse_messages(inputs)))
    setting = Setting(messages, default_model(caller), template_format="none")
    if not messages:
        names = [name for name in inputs if name.isidentifier()]
        text = "\n\n".join(f"{{{name}}}" for name in names)
        setting = Setting([ChatMessage("human", text)], setting.model)
    result = _state(setting, variables=dict(inputs) if not messages else {})
    result["dataset"] = {"dataset_id": str(example.dataset_id)}
    return result


def from_run(caller: Caller, run_id: UUID) -> dict[str, Any]:
    """Return a column with a run's messages, tools, parameters and schema, and its reply.

    Raises `RunNotFound`, and `CannotPrefill` for a run without messages.
    """
    caller.require(Permission.RUNS_READ)
    run = run_store.get(caller.workspace_id, run_id, payloads=_PAYLOADS)
    if run is None:
        raise RunNotFound
    inputs, extra = run.value(Payload.INPUTS), run.value(Payload.EXTRA) or {}
    messages = list(convert_messages(parse_messages(inputs)))
    if not messages:
        raise errors.CannotPrefill("The run has no messages of a model call.")
    params = extra.get("invocation_params")
    params = params if isinstance(params, dict) else {}
    metadata = run.row.metadata
    setting = Setting(
        messages,
        _read_model(caller, metadata, params),
        name=run.row.name[:200],
        prompt=_read_prompt(metadata),
        template_format="none",
        tools=_read_tools(params) or _read_tools(inputs),
        response_schema=_read_schema(params),
    )
    return _state(setting, recorded=_recorded(run))


def _read_prompt(metadata: Mapping[str, Any]) -> PromptReference | None:
    repo, commit = metadata.get("lc_hub_repo"), metadata.get("lc_hub_commit_hash")
    if isinstance(repo, str) and isinstance(commit, str):
        return PromptReference(repo, commit)
    return None


def _recorded(run: RunDetail) -> dict[str, Any]:
    """The reply of the run as the end of a column's stream has it."""
    row = run.row
    replies = list(convert_messages(parse_messages(run.value(Payload.OUTPUTS))))
    reply = next((message for message in reversed(replies) if message.role == "ai"), None)
    usage, details = row.usage, row.usage.details or {}
    first_token = row.first_token_time
    return {
        "letter": "A",
        "status": "success" if row.error_preview is None else "error",
        "run_id": row.id,
        "trace_url": reverse("trace-redirect", args=[row.workspace_id, row.id]),
        "message": None if reply is None else msgspec.to_builtins(reply),
        "error": run.value(Payload.ERROR),
        "usage": None
        if usage.total_tokens is None
        else {
            "input_tokens": usage.prompt_tokens or 0,
            "output_tokens": usage.completion_tokens or 0,
            "total_tokens": usage.total_tokens,
            "input_token_details": details.get("prompt_token_details") or {},
            "output_token_details": details.get("completion_token_details") or {},
        },
        "cost": None if usage.total_cost is None else float(usage.total_cost),
        "latency_ms": None
        if row.end_time is None
        else round((row.end_time - row.start_time).total_seconds() * 1000),
        "first_token_ms": None
        if first_token is None
        else round((first_token - row.start_time).total_seconds() * 1000),
    }


def default_model(caller: Caller) -> ModelSettings:
    """The newest model of the first provider for which the workspace has a key."""
    keys = find_keys(caller.workspace_id)
    usable = [provider for provider in PROVIDERS.values() if provider.id in keys]
    for provider in (*usable, *PROVIDERS.values()):
        if models := list_models(provider):
            return ModelSettings(provider.id, models[0])
    raise errors.CannotPrefill("No models are known.")


def _read_model(
    caller: Caller, metadata: Mapping[str, Any], params: Mapping[str, Any]
) -> ModelSettings:
    name = metadata.get("ls_model_name") or params.get("model") or params.get("model_name")
    if not isinstance(name, str) or not name:
        return default_model(caller)
    provider_name = str(params.get("provider") or metadata.get("ls_provider") or "").lower()
    provider = _PROVIDERS.get(provider_name) or _guess_provider(name)
    fields: dict[str, Any] = {"provider": provider, "model": name}
    for field, keys in _PARAMETER_KEYS.items():
        sources = (*(params.get(key) for key in keys), metadata.get(f"ls_{field}"))
        value = next((source for source in sources if source is not None), None)
        if value is not None:
            fields[field] = value
    if not PROVIDERS[provider].has_base_url:
        fields.pop("base_url", None)
        fields.pop("api_version", None)
    choice = params.get("tool_choice")
    if isinstance(choice, str):
        fields["tool_choice"] = "required" if choice == "any" else choice
    return convert_model(fields)


def _guess_provider(model: str) -> str:
    for provider in PROVIDERS.values():
        if provider.model_prefixes and model.startswith(provider.model_prefixes):
            return provider.id
    return "openai_compatible"


def _read_tools(values: Any) -> list[ChatTool]:
    tools = []
    for tool in parse_tools(values):
        try:
            schema = loads(tool.schema) if tool.schema else {}
        except ValueError:
            schema = {}
        tools.append(
            ChatTool(tool.name, tool.description, schema if isinstance(schema, dict) else {})
        )
    return tools


def _read_schema(params: Mapping[str, Any]) -> dict[str, Any] | None:
    schema = params.get("response_schema")
    if isinstance(schema, dict):
        return schema
    response_format = params.get("response_format")
    if isinstance(response_format, dict):
        if response_format.get("type") == "json_object":
            return {"type": "object"}
        json_schema = response_format.get("json_schema")
        schema = json_schema.get("schema") if isinstance(json_schema, dict) else None
    return schema if isinstance(schema, dict) else None


def convert_messages(messages: Iterable[Message]) -> Iterator[ChatMessage]:
    """Yield the messages, and after each the results of its tool calls."""
    for message in messages:
        calls = [
            ChatToolCall(call.id or f"call_{index}", call.name, _read_arguments(call.arguments))
            for index, call in enumerate(message.tool_calls)
        ]
        thoughts = [part.text for part in message.parts if part.kind == THINKING]
        yield ChatMessage(
            _role(message.role),
            _convert_parts(message),
            thinking="\n".join(thoughts) or None,
            tool_calls=calls,
            tool_call_id=message.tool_call_id or None,
            name=message.name or None,
        )
        for call, recorded in zip(calls, message.tool_calls, strict=True):
            if recorded.result:
                text = "\n".join(_part_text(part) for part in recorded.result)
                yield ChatMessage("tool", text, tool_call_id=call.id, name=call.name)


def _role(role: str) -> Role:
    return {SYSTEM: "system", HUMAN: "human", AI: "ai"}.get(role, "tool")  # type: ignore[return-value]


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        value = loads(text) if text else {}
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"__raw__": text}


def _convert_parts(message: Message) -> str | list[Block]:
    parts = [part for part in message.parts if part.kind != THINKING]
    if message.role != HUMAN or not any(part.is_medium for part in parts):
        return "\n".join(_part_text(part) for part in parts)
    return [_convert_part(part) for part in parts]


def _convert_part(part: MessagePart) -> Block:
    if part.kind == IMAGE and part.is_link:
        return ImageBlock(url=part.text)
    if part.is_medium and part.is_embedded:
        data = part.text.partition(",")[2]
        if part.kind == IMAGE:
            return ImageBlock(data=data, mime_type=part.mime_type or "image/png")
        return FileBlock(data, part.mime_type or "application/octet-stream", part.name or None)
    return TextBlock(_part_text(part))


def _part_text(part: MessagePart) -> str:
    return part.label if part.is_medium else part.text
