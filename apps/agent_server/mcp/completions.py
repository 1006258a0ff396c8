"""Values that a client suggests to its user for an argument of a prompt or of a resource."""

from __future__ import annotations

from typing import Any

from apps.agent_server.auth.access import Admission
from apps.agent_server.mcp import prompts, resources
from apps.agent_server.mcp.tools import Tool
from apps.core.mcp.messages import INVALID_PARAMS, JSONObject, RpcError

MAX_VALUES = 100


def complete(admission: Admission, params: JSONObject) -> JSONObject:
    """The completion of an argument: values that begin with the text so far, in any case.

    Arguments of graphs have the values that their schema lists, threads their ids. Raises
    `RpcError` for a prompt, template or argument that the caller does not see.
    """
    reference, argument = params.get("ref"), params.get("argument")
    if not isinstance(reference, dict) or not isinstance(argument, dict):
        raise RpcError(INVALID_PARAMS, "ref, argument: must be objects.")
    name, text = argument.get("name"), argument.get("value")
    if not isinstance(name, str) or not isinstance(text, str):
        raise RpcError(INVALID_PARAMS, "argument: must have the strings name and value.")
    values = _find_values(admission, reference, name)
    matching = [value for value in values if value.lower().startswith(text.lower())]
    return {
        "values": matching[:MAX_VALUES],
        "total": len(matching),
        "hasMore": len(matching) > MAX_VALUES,
    }


def _find_values(admission: Admission, reference: JSONObject, name: str) -> list[str]:
    scope = admission.resolve_scope("assistants", "search")
    uri = reference.get("uri")
    if reference.get("type") == "ref/prompt":
        return _values_of(prompts.find(scope, str(reference.get("name"))), name)
    if reference.get("type") != "ref/resource" or not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "ref: must be a ref/prompt or a ref/resource.")
    if uri == resources.TEMPLATE["uriTemplate"] and name == "thread_id":
        return resources.newest_thread_ids(admission)
    tool = resources.find_template(scope, uri)
    if tool is None:
        raise RpcError(INVALID_PARAMS, "ref: there is no such template.")
    return _values_of(tool, name)


def _values_of(tool: Tool, name: str) -> list[str]:
    """The values that the schema of a graph's input lists for one of its fields."""
    properties = tool.schemas.input_schema.get("properties", {})
    if name not in properties:
        raise RpcError(INVALID_PARAMS, "argument: has no such name.")
    texts: list[str] = []
    for schema in _alternatives(properties[name], tool.schemas.input_schema.get("$defs", {})):
        listed = (
            [schema["const"]] if "const" in schema else schema.get("enum", schema.get("examples"))
        )
        texts += [value for value in listed or () if isinstance(value, str)]
    return sorted(set(texts))


def _alternatives(schema: Any, definitions: JSONObject) -> list[JSONObject]:
    """The schema itself, or those that it names one of."""
    if not isinstance(schema, dict):
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = definitions.get(reference.rpartition("/")[2], {})
    options = schema.get("anyOf", schema.get("oneOf"))
    if not isinstance(options, list):
        return [schema]
    return [option for option in options if isinstance(option, dict)]
