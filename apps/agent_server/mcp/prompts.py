"""The prompts of an agent: assistants of the graphs that `mcp.prompts` in langgraph.json names.

A user picks a prompt in the client and fills in its arguments, which are the fields of the graph's
input. The messages that the graph returns go to the client's model.
"""

from __future__ import annotations

from typing import Any

from apps.agent_server.mcp import tools
from apps.agent_server.mcp.content import to_blocks, to_parts
from apps.agent_server.mcp.tools import Tool
from apps.agent_server.scope import Scope
from apps.core.json import loads_exact
from apps.core.mcp.messages import INTERNAL_ERROR, INVALID_PARAMS, JSONObject, RpcError
from apps.tracing.messages.types import AI, HUMAN, ROLES

PREFIX = "prompt:"
"""Of a prompt's name in the state of a call: no tool has such a name."""
_ROLES = {HUMAN: "user", AI: "assistant"}
_PARSED = frozenset({"integer", "number", "boolean", "array", "object", "null"})


def list_page(scope: Scope, cursor: str | None) -> tuple[list[JSONObject], str | None]:
    """A page of the prompts that the caller may see, and the cursor of the next one."""
    page, next_cursor = tools.list_page(scope, cursor, scope.route.serving.mcp.prompts)
    return [_as_json(prompt) for prompt in page], next_cursor


def find(scope: Scope, name: str) -> Tool:
    """The prompt with this name. Raises `RpcError` if the caller sees none."""
    return tools.find(scope, name, scope.route.serving.mcp.prompts, kind="prompt")


def _as_json(prompt: Tool) -> JSONObject:
    schema = prompt.schemas.input_schema
    required = schema.get("required", [])
    arguments = [
        {"name": name, **_texts_of(member), "required": name in required}
        for name, member in schema.get("properties", {}).items()
    ]
    return {
        "name": prompt.name,
        "title": prompt.title or prompt.name,
        "description": prompt.description or f"The prompt {prompt.title or prompt.name}.",
        "arguments": sorted(arguments, key=lambda argument: not argument["required"]),
    }


def _texts_of(schema: Any) -> JSONObject:
    texts = schema if isinstance(schema, dict) else {}
    return {
        name: texts[name] for name in ("title", "description") if isinstance(texts.get(name), str)
    }


def read_arguments(prompt: Tool, arguments: Any) -> JSONObject:
    """The graph's fields of the arguments, which are texts: other types are written as JSON.

    Raises `RpcError` if they do not match the input schema.
    """
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict) or not all(isinstance(v, str) for v in arguments.values()):
        raise RpcError(INVALID_PARAMS, "arguments: must be an object of strings.")
    properties = prompt.schemas.input_schema.get("properties", {})
    fields = {name: _parse(text, properties.get(name)) for name, text in arguments.items()}
    if problem := prompt.schemas.describe_problem(fields):
        raise RpcError(INVALID_PARAMS, f"arguments: {problem}")
    return fields


def _parse(text: str, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind not in _PARSED:
        return text
    try:
        return loads_exact(text)
    except ValueError:
        return text


def to_result(output: Any, prompt: Tool, *, has_links: bool) -> JSONObject:
    """The messages of a graph's output. Raises `RpcError` if it has none."""
    messages = output.get("messages") if isinstance(output, dict) else None
    result: list[JSONObject] = []
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict):
            continue
        role = _ROLES.get(ROLES.get(str(message.get("type") or message.get("role")), ""))
        if role is not None:
            blocks = to_blocks(to_parts(message.get("content")), has_links=has_links)
            result += [{"role": role, "content": block} for block in blocks]
    if not result:
        raise RpcError(INTERNAL_ERROR, "The graph returned no message of a user or an assistant.")
    return {"description": prompt.description, "messages": result}
