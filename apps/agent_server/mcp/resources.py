"""The resources of an agent: its threads, and what graphs return for addresses of their own.

A thread is `thread:///{thread_id}`, with the values of its state. `mcp.resources` in langgraph.json
names the graph of an address or a template, whose variables are the fields of the graph's input.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from apps.agent_server.a2a.content import last_ai_content
from apps.agent_server.auth.access import Admission
from apps.agent_server.errors import ThreadNotFound
from apps.agent_server.mcp import tools
from apps.agent_server.mcp.content import to_contents
from apps.agent_server.mcp.tools import Tool
from apps.agent_server.schemas.threads import ThreadSearch
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistants, threads
from apps.core.json import dumps_text
from apps.core.mcp.messages import INVALID_PARAMS, RESOURCE_NOT_FOUND, JSONObject, RpcError
from apps.deployments.langgraph_json import uri_template
from apps.deployments.langgraph_json.uri_template import UriTemplate

PAGE_SIZE = 50
MAX_OFFSET = 10_000
PREFIX = "thread:///"
MEDIA_TYPE = "application/json"
STATE_PREFIX = "resource:"
"""Of a resource's name in the state of a call: no tool has such a name."""
TEMPLATE: JSONObject = {
    "uriTemplate": f"{PREFIX}{{thread_id}}",
    "name": "thread",
    "title": "Thread",
    "description": "The values of a thread's state, with its status and open questions.",
    "mimeType": MEDIA_TYPE,
}


def list_page(admission: Admission, cursor: str | None) -> tuple[list[JSONObject], str | None]:
    """A page of the threads that the caller may see, the latest changed first."""
    offset = _parse_cursor(cursor)
    search = ThreadSearch(
        limit=PAGE_SIZE, offset=offset, select=["thread_id", "status", "updated_at"]
    )
    scope, search = admission.authorize("threads", "search", search)
    rows, has_more = threads.search(scope, search)
    next_offset = offset + PAGE_SIZE
    return [
        {
            "uri": f"{PREFIX}{row['thread_id']}",
            "name": str(row["thread_id"]),
            "description": f"A thread, {row['status']}, changed at {row['updated_at'].isoformat()}",
            "mimeType": MEDIA_TYPE,
        }
        for row in rows
    ], str(next_offset) if has_more and next_offset <= MAX_OFFSET else None


def newest_thread_ids(admission: Admission) -> list[str]:
    """The ids of the threads on the first page."""
    page, _ = list_page(admission, None)
    return [resource["name"] for resource in page]


def read(admission: Admission, uri: str, *, is_stateless: bool) -> JSONObject:
    """The content of a thread. Raises `RpcError` if the caller may not see one with the URI."""
    thread_id = thread_id_of(uri)
    if thread_id is None:
        raise not_found(uri, is_stateless=is_stateless)
    scope = admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    try:
        row = threads.get(scope, thread_id)
    except ThreadNotFound:
        raise not_found(uri, is_stateless=is_stateless) from None
    head = dumps_text({"thread_id": thread_id, "status": row.status, "updated_at": row.updated_at})
    # The columns are JSON.
    columns = f',"values":{row.values or "null"},"interrupts":{row.interrupts or "{}"}}}'
    return {"uri": uri, "mimeType": MEDIA_TYPE, "text": f"{head[:-1]}{columns}"}


def thread_id_of(uri: str) -> UUID | None:
    """The id of the thread with this address; None for any other."""
    try:
        return UUID(uri.removeprefix(PREFIX)) if uri.startswith(PREFIX) else None
    except ValueError:
        return None


def _parse_cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (
        cursor.isascii() and cursor.isdigit() and len(cursor) < 9 and int(cursor) <= MAX_OFFSET
    ):
        raise RpcError(INVALID_PARAMS, "cursor: must be the cursor of the previous page.")
    return int(cursor)


def not_found(uri: str, *, is_stateless: bool) -> RpcError:
    code = INVALID_PARAMS if is_stateless else RESOURCE_NOT_FOUND
    return RpcError(code, "There is no such resource.", data={"uri": uri[:1000]})


# Resources of graphs


class NamedResource(NamedTuple):
    """An address or a template of langgraph.json, and the graph that has its content."""

    template: UriTemplate
    graph_id: str


def list_named(scope: Scope, *, are_templates: bool) -> list[JSONObject]:
    """The addresses of langgraph.json, or its templates, that the caller may see."""
    named = [one for one in _named(scope) if bool(one.template.variables) is are_templates]
    field = "uriTemplate" if are_templates else "uri"
    return [
        {
            field: one.template.text,
            "name": tool.name,
            "title": tool.title or tool.name,
            "description": tool.description or f"What the graph {one.graph_id} returns.",
        }
        for one in named
        if (tool := _find_tool(scope, one.graph_id)) is not None
    ]


def find_named(scope: Scope, uri: str) -> tuple[Tool, JSONObject] | None:
    """The assistant that has the content of an address, and its input; None if there is none."""
    for one in _named(scope):
        values = one.template.match(uri)
        if values is not None and (tool := _find_tool(scope, one.graph_id)) is not None:
            return tool, values
    return None


def find_template(scope: Scope, text: str) -> Tool | None:
    """The assistant of a template, as `list_named` lists it."""
    named = next((one for one in _named(scope) if one.template.text == text), None)
    return None if named is None else _find_tool(scope, named.graph_id)


def _named(scope: Scope) -> list[NamedResource]:
    """Those without variables first: an address of its own precedes a template."""
    resources = scope.route.serving.mcp.resources.items()
    named = [NamedResource(uri_template.parse(text), graph_id) for text, graph_id in resources]
    return sorted(named, key=lambda one: bool(one.template.variables))


def _find_tool(scope: Scope, graph_id: str) -> Tool | None:
    """The assistant that the platform made for the graph, if the caller may see it."""
    try:
        return tools.get(scope, assistants.system_assistant_id(graph_id), [graph_id])
    except RpcError:
        return None


def to_result(output: Any, uri: str) -> JSONObject:
    """The last message of the model as the content of a resource, or the output as JSON."""
    contents = to_contents(last_ai_content(output), uri)
    if not contents:
        contents = [{"uri": uri, "mimeType": MEDIA_TYPE, "text": dumps_text(output)}]
    return {"contents": contents}
