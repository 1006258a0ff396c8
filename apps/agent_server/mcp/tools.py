"""The tools of an agent: its assistants under names that MCP allows.

Assistants of graphs that `mcp` in langgraph.json names are prompts or resources instead.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.agent_server import prepared_sql
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistants
from apps.agent_server.services.graph_schemas import GraphSchemas, schema_cache
from apps.core.mcp.messages import INVALID_PARAMS, RpcError, decode_header, header_mismatch

JSONObject = dict[str, Any]
PAGE_SIZE = 100
PARAMETER_HEADER = "mcp-param-"
_HEADER_FIELD = "x-mcp-header"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# The oldest of several assistants with one name has it without a suffix. A name that looks as if
# it had a suffix gets one too, so all names differ.
_NAMED = """
SELECT id, created_at, assistant_id, graph_id, name, coalesce(description, ''),
    CASE WHEN has_base THEN base ELSE long_name END
FROM (
    SELECT *, left(base, 55) || '_' || left(assistant_id::text, 8) AS long_name,
        row_number() OVER (PARTITION BY base ORDER BY created_at, id) = 1
            AND base !~ '_[0-9a-f]{8}$' AS has_base
    FROM (
        SELECT id, assistant_id, graph_id, name, description, created_at,
            coalesce(nullif(left(regexp_replace(name, '[^A-Za-z0-9_.-]', '_', 'g'), 64), ''),
                'assistant') AS base
        FROM agent_server_assistant
        WHERE workspace_id = %(workspace)s AND deployment_id = %(deployment)s
          AND metadata @> %(visible)s::jsonb AND graph_id = ANY(%(graphs)s)
    ) named
) ranked
"""
_PAGE = f"""{_NAMED}
WHERE %(after_time)s::timestamptz IS NULL OR (created_at, id) > (%(after_time)s, %(after_id)s)
ORDER BY created_at, id LIMIT %(limit)s
"""
# A name with its suffix stays valid when the assistant becomes the only one of its name.
_BY_NAME = f"""{_NAMED}
WHERE (has_base AND base = %(name)s) OR long_name = %(name)s
ORDER BY long_name = %(name)s, created_at LIMIT 1
"""
_BY_ID = f"{_NAMED} WHERE assistant_id = %(assistant)s"


@dataclass(frozen=True, slots=True)
class Tool:
    """An assistant as a tool."""

    name: str
    assistant_id: UUID
    title: str
    description: str
    schemas: GraphSchemas

    def as_json(self) -> JSONObject:
        tool: JSONObject = {
            "name": self.name,
            "title": self.title or self.name,
            "description": self.description or f"Runs the assistant {self.title or self.name}.",
            "inputSchema": self.schemas.input_schema,
            # What a graph does is not known.
            "annotations": {"title": self.title or self.name, "openWorldHint": True},
        }
        if self.schemas.output_schema is not None:
            tool["outputSchema"] = self.schemas.output_schema
        return tool

    def check_headers(self, headers: Mapping[str, str], arguments: JSONObject) -> None:
        """Check the headers that repeat arguments: those that the schema names by `x-mcp-header`.

        Raises `RpcError` if a header differs from its argument, or is there without one.
        """
        for name, path in _parameter_headers(self.schemas.input_schema).items():
            value: Any = arguments
            for member in path:
                value = value.get(member) if isinstance(value, dict) else None
            header = f"{PARAMETER_HEADER}{name}"
            if not _repeats(headers.get(header), value):
                raise header_mismatch(header)


def _parameter_headers(schema: JSONObject) -> dict[str, tuple[str, ...]]:
    """The path of the argument that each header repeats."""
    paths: dict[str, tuple[str, ...]] = {}
    pending: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while pending:
        path, member = pending.pop()
        if not isinstance(member, dict):
            continue
        name = member.get(_HEADER_FIELD)
        is_plain = member.get("type") in ("string", "integer", "boolean")
        if isinstance(name, str) and _HEADER_NAME.fullmatch(name) and path and is_plain:
            paths[name.lower()] = path
        properties = member.get("properties")
        if isinstance(properties, dict):
            pending += [((*path, key), value) for key, value in properties.items()]
    return paths


def _repeats(header: str | None, value: Any) -> bool:
    """Whether a header is what a client makes of the argument; null has no header."""
    if header is None or value is None:
        return header is None and value is None
    text = decode_header(header)
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return float(text or "") == value
        except ValueError:
            return False
    return isinstance(value, str) and text == value


def graphs_of(scope: Scope) -> list[str]:
    """The graphs whose assistants are tools."""
    others = scope.route.serving.mcp.graph_ids
    return [graph_id for graph_id in scope.route.graph_ids if graph_id not in others]


def list_page(
    scope: Scope, cursor: str | None, graphs: Collection[str] | None = None
) -> tuple[list[Tool], str | None]:
    """A page of the tools that the caller may see, oldest first, and the cursor of the next one.

    `graphs`: those of the listed assistants, by default those of tools.
    """
    after_time, after_id = _parse_cursor(cursor)
    position = {"after_time": after_time, "after_id": after_id, "limit": PAGE_SIZE + 1}
    rows = prepared_sql.fetch_rows(_PAGE, {**_parameters(scope, graphs), **position})
    page = rows[:PAGE_SIZE]
    next_cursor = _encode_cursor(page[-1]) if len(rows) > PAGE_SIZE else None
    return [_to_tool(scope, row) for row in page], next_cursor


def find(
    scope: Scope, name: str, graphs: Collection[str] | None = None, *, kind: str = "tool"
) -> Tool:
    """The tool with this name. Raises `RpcError` if the caller sees none."""
    rows = prepared_sql.fetch_rows(_BY_NAME, {**_parameters(scope, graphs), "name": name})
    if not rows:
        raise RpcError(INVALID_PARAMS, f"Unknown {kind}: {name:.200}")
    return _to_tool(scope, rows[0])


def get(scope: Scope, assistant_id: UUID, graphs: Collection[str] | None = None) -> Tool:
    """The tool of an assistant. Raises `RpcError` if the caller sees none."""
    parameters = {**_parameters(scope, graphs), "assistant": assistant_id}
    rows = prepared_sql.fetch_rows(_BY_ID, parameters)
    if not rows:
        raise RpcError(INVALID_PARAMS, "The assistant was deleted.")
    return _to_tool(scope, rows[0])


def _parameters(scope: Scope, graphs: Collection[str] | None) -> JSONObject:
    assistants.ensure_system_assistants(scope.route)
    workspace, deployment = scope.key
    return {
        "workspace": workspace,
        "deployment": deployment,
        "visible": scope.visible,
        "graphs": list(graphs_of(scope) if graphs is None else graphs),
    }


def _to_tool(scope: Scope, row: Sequence[Any]) -> Tool:
    _, _, assistant_id, graph_id, title, description, name = row
    schemas = schema_cache.get(scope, graph_id)
    return Tool(name, assistant_id, title.strip(), description.strip(), schemas)


def _encode_cursor(row: Sequence[Any]) -> str:
    text = f"{row[1].isoformat()} {row[0].hex}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _parse_cursor(cursor: str | None) -> tuple[datetime | None, UUID | None]:
    if cursor is None:
        return None, None
    try:
        time, _, row_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        created_at = datetime.fromisoformat(time)
        if created_at.tzinfo is None:
            raise ValueError("no time zone")
        return created_at, UUID(row_id)
    except (ValueError, binascii.Error):
        raise RpcError(INVALID_PARAMS, "cursor: must be the cursor of the previous page.") from None
