"""Transformations of a dataset: changes of one place of every example before it is validated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from apps.core import errors as core_errors
from apps.core.json import dumps_text
from apps.datasets.models import Dataset
from apps.datasets.services.source_runs import SourceRun
from apps.datasets.wire import WireTransformation

MAX_TRANSFORMATIONS = 50
MAX_PATH_LENGTH = 20
_ROLE_BY_TYPE = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "developer": "developer",
    "chat": "user",
}
_KEPT_FIELDS = ("name", "tool_call_id", "refusal")

JsonDict = dict[str, Any]


def check_transformations(transformations: Sequence[WireTransformation]) -> list[JsonDict]:
    """Return the transformations as stored; raises `Invalid` for an unknown type or path."""
    if len(transformations) > MAX_TRANSFORMATIONS:
        raise core_errors.Invalid(
            f"`transformations`: a dataset has at most {MAX_TRANSFORMATIONS}."
        )
    for item in transformations:
        if item.transformation_type not in _TYPES:
            raise core_errors.Invalid(
                f"`transformations`: {item.transformation_type!r:.60} is not one of"
                f" {', '.join(_TYPES)}."
            )
        if not item.path or item.path[0] not in {"inputs", "outputs"}:
            raise core_errors.Invalid(
                "`transformations`: a path starts with `inputs` or `outputs`."
            )
        if len(item.path) > MAX_PATH_LENGTH:
            raise core_errors.Invalid(
                f"`transformations`: a path has at most {MAX_PATH_LENGTH} parts."
            )
    return [
        {"path": item.path, "transformation_type": item.transformation_type}
        for item in transformations
    ]


def needs_run_extra(dataset: Dataset) -> bool:
    """Return whether a transformation reads the source run's `extra`."""
    types = {item["transformation_type"] for item in dataset.transformations or ()}
    return EXTRACT_TOOLS in types


def transform(
    dataset: Dataset, inputs: JsonDict, outputs: JsonDict | None, run: SourceRun | None
) -> tuple[JsonDict, JsonDict | None]:
    """Return inputs and outputs after the dataset's transformations.

    Those of one path are applied in the order of `_TYPES`. A path that the example does not have
    is skipped.
    """
    example: JsonDict = {"inputs": inputs, "outputs": outputs}
    order = list(_TYPES)
    for item in sorted(
        dataset.transformations or (), key=lambda item: order.index(item["transformation_type"])
    ):
        *parents, last = item["path"]
        parent: Any = example
        for name in parents:
            parent = parent.get(name) if isinstance(parent, dict) else None
        if not isinstance(parent, dict):
            continue
        if item["transformation_type"] == EXTRACT_TOOLS:
            tools = _tools_of(run)
            if tools is not None:
                parent[last] = tools
        elif item["transformation_type"] == REMOVE_EXTRA_FIELDS:
            schema = _schema_at(dataset, item["path"])
            parent[last] = _without_extra_fields(parent.get(last), schema)
        elif parent.get(last) is not None:
            parent[last] = _TYPES[item["transformation_type"]](parent[last])
    return example["inputs"], example["outputs"]


def convert_messages(value: Any) -> Any:
    """Convert a message, or each of a list (of lists), to the format of OpenAI."""
    if isinstance(value, list):
        return [convert_messages(item) for item in value]
    return _convert_message(value) if isinstance(value, dict) else value


def _convert_message(message: JsonDict) -> JsonDict:
    """Convert a message of LangChain, serialized in any of its ways; others stay as they are."""
    fields: Any = message
    kind = message.get("type")
    if kind == "constructor" and isinstance(message.get("kwargs"), dict):
        fields = message["kwargs"]
        path = message.get("id")
        name = str(path[-1]) if isinstance(path, list) and path else ""
        kind = name.removesuffix("Chunk").removesuffix("Message").lower()
    elif isinstance(message.get("data"), dict):
        fields = message["data"]
    role = message.get("role") or fields.get("role") or _ROLE_BY_TYPE.get(str(kind))
    if role is None or fields.get("role") or "content" not in fields:
        return message
    converted: JsonDict = {"role": role, "content": fields["content"]}
    converted |= {name: fields[name] for name in _KEPT_FIELDS if fields.get(name)}
    calls = _tool_calls(fields)
    if calls:
        converted["tool_calls"] = calls
    return converted


def _tool_calls(fields: JsonDict) -> list[Any]:
    calls = fields.get("tool_calls")
    if not calls:
        extra = fields.get("additional_kwargs")
        calls = extra.get("tool_calls") if isinstance(extra, dict) else None
    if not isinstance(calls, list):
        return []
    return [
        {
            "type": "function",
            "id": call.get("id"),
            "function": {"name": call["name"], "arguments": dumps_text(call.get("args") or {})},
        }
        if isinstance(call, dict) and "name" in call
        else call
        for call in calls
    ]


def _remove_system_messages(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and all(isinstance(item, list) for item in value):
        return [_remove_system_messages(item) for item in value]
    return [item for item in value if not _is_system_message(item)]


def _is_system_message(value: Any) -> bool:
    return isinstance(value, dict) and _convert_message(value).get("role") == "system"


def _convert_tools(value: Any) -> Any:
    """Convert a tool definition, or each of a list, to the format of OpenAI."""
    if isinstance(value, list):
        return [_convert_tools(item) for item in value]
    if not isinstance(value, dict) or "function" in value or "name" not in value:
        return value
    parameters = value.get("parameters") or value.get("input_schema") or value.get("args_schema")
    function = {"name": value["name"], "description": value.get("description") or ""}
    return {"type": "function", "function": function | {"parameters": parameters or {}}}


def _tools_of(run: SourceRun | None) -> Any:
    """Return the tools that the run's model call was offered."""
    parameters = run.extra.get("invocation_params") if run is not None else None
    return parameters.get("tools") if isinstance(parameters, dict) else None


def _schema_at(dataset: Dataset, path: Sequence[str]) -> Any:
    schema: Any = dataset.inputs_schema if path[0] == "inputs" else dataset.outputs_schema
    for name in path[1:]:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        schema = properties.get(name) if isinstance(properties, dict) else None
    return schema


def _without_extra_fields(value: Any, schema: Any) -> Any:
    """Remove the properties that the schema does not name, in nested objects and lists, too."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_without_extra_fields(item, schema.get("items")) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    return {
        name: _without_extra_fields(member, properties[name])
        for name, member in value.items()
        if name in properties
    }


REMOVE_EXTRA_FIELDS = "remove_extra_fields"
EXTRACT_TOOLS = "extract_tools_from_run"
_TYPES: dict[str, Callable[[Any], Any]] = {
    "convert_to_openai_message": convert_messages,
    "convert_to_openai_tool": _convert_tools,
    "remove_system_messages": _remove_system_messages,
    REMOVE_EXTRA_FIELDS: lambda value: value,
    EXTRACT_TOOLS: lambda value: value,
}
