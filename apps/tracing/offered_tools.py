"""Parses the tools that a model was offered, from a run's input or invocation parameters.

Supported are the form of model providers (`function`, or the fields on the tool itself with
`parameters` or `input_schema`) and tools that are recorded as JSON text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from apps.core.json import loads

MAX_TOOLS = 200
TOOL_KEYS = ("tools", "functions")
_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "args_schema", "schema")


@dataclass(frozen=True)
class OfferedTool:
    """A tool that the model could call; `schema` is indented JSON."""

    name: str
    description: str
    schema: str


def parse_tools(values: Any) -> list[OfferedTool]:
    """Return the tools in `tools` or `functions` of an object; empty if it has none."""
    if not isinstance(values, dict):
        return []
    for key in TOOL_KEYS:
        items = values.get(key)
        if isinstance(items, list) and items:
            tools = [_parse_tool(item) for item in items[:MAX_TOOLS]]
            return [tool for tool in tools if tool is not None]
    return []


def _parse_tool(item: Any) -> OfferedTool | None:
    if isinstance(item, str):
        try:
            item = loads(item)
        except ValueError:
            return OfferedTool(item, "", "")
    if not isinstance(item, dict):
        return None
    function = item.get("function")
    fields = function if isinstance(function, dict) else item
    # Tools that a provider runs itself have a type in place of a name.
    name = fields.get("name") or item.get("type") or "tool"
    schema = next((fields[key] for key in _SCHEMA_KEYS if fields.get(key)), None)
    if schema is None and fields is item:
        schema = {key: value for key, value in item.items() if key not in ("name", "description")}
    description = fields.get("description")
    return OfferedTool(
        name=str(name),
        description=description if isinstance(description, str) else "",
        schema=json.dumps(schema, indent=2, ensure_ascii=False) if schema else "",
    )
