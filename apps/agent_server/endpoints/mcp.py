"""The endpoint of the Model Context Protocol: each assistant is a tool (docs/adr/0036)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from apps.agent_server import prepared_sql, results
from apps.agent_server.endpoints.endpoint import EndpointGroup, Result
from apps.agent_server.mcp import messages, sessions, tools
from apps.agent_server.mcp.messages import McpMessage, RpcError
from apps.agent_server.mcp.tools import Tool
from apps.agent_server.schemas.base import Body
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs, runs
from apps.agent_server.services.graph_schemas import OUTPUT_FIELD, find_problem
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import BEGINNING, END, Event
from apps.agent_server.web.cors import allows_origin
from apps.agent_server.web.http_context import JSON, HttpRequestContext, Response
from apps.core import errors
from apps.core.json import dumps_text, loads, loads_exact
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

JSONObject = dict[str, Any]
SESSION_HEADER = "mcp-session-id"
LIST_TTL_MS = 0
"""Assistants may change at any time, so clients do not cache the list."""
_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_SESSION_KEY, _REQUEST_KEY = "mcp_session", "mcp_request_id"
"""Metadata of a run by which its client can cancel it."""
_OPEN_RUNS = """
SELECT id FROM agent_server_agentrun
WHERE workspace_id = %s AND deployment_id = %s AND status IN ('pending', 'running')
  AND metadata @> %s::jsonb
"""

endpoints = EndpointGroup("mcp")


class JsonRpcMessage(Body):
    """A JSON-RPC 2.0 request or notification."""

    jsonrpc: Literal["2.0"]
    id: str | int | None = None
    method: str
    params: JSONObject = {}


class OriginNotAllowed(errors.Forbidden):
    code = "origin_not_allowed"
    detail = (
        "Requests of web pages of this origin are not allowed. The agent's langgraph.json can allow"
        " it with `http.cors.allow_origins`."
    )


class HostNotAllowed(errors.BadRequest):
    code, detail = "host_not_allowed", "This host is not an address of the platform."


@endpoints.post(
    "/mcp",
    permission=Permission.AGENTS_READ,
    runs_on_loop=True,
    raw_body_model=JsonRpcMessage,
    response=Any,
    other_statuses={202: "The notification is accepted."},
)
def handle_message(context: HttpRequestContext, raw_body: bytes) -> Result:
    """Handle a message of the Model Context Protocol: each assistant is a tool.

    Streamable HTTP of the versions 2024-11-05 to 2025-11-25, and 2026-07-28 without a handshake.
    Errors are JSON-RPC errors. `tools/call` runs the assistant without a thread; with a progress
    token the response is an event stream. Calling a tool requires the permission to run the agent.
    """
    _check_origin(context)
    try:
        message = messages.read_message(context.headers, raw_body)
        return _handle(context, message)
    except RpcError as error:
        context.admission.user()  # also an invalid message needs an authenticated caller
        return Response(error.as_json(), error.status)


def _handle(context: HttpRequestContext, message: McpMessage) -> Result:
    try:
        message.check_headers(context.headers)
        session = _read_session(context, message)
        if not message.is_request:
            return _handle_notification(context, message, session)
        if message.method == "tools/list":
            return _list_tools(context, message)
        if message.method == "tools/call":
            return _call_tool(context, message, session)
        context.admission.user()
        if message.is_stateless and message.method == "server/discover":
            return _discover(context, message)
        if not message.is_stateless and message.method == "initialize":
            return _initialize(context, message)
        if not message.is_stateless and message.method == "ping":
            return _respond(context, message, {})
        status = 404 if message.is_stateless else 200
        text = f"Unknown method: {message.method}"
        raise RpcError(messages.METHOD_NOT_FOUND, text, status=status)
    except RpcError as error:
        error.request_id = message.id
        raise


def _check_origin(context: HttpRequestContext) -> None:
    """Refuse hosts of others and pages of other origins, as DNS rebinding sends them."""
    host = context.headers.get("host", "").lower()
    if host and "*" not in settings.ALLOWED_HOSTS and not _is_own_host(host):
        raise HostNotAllowed
    origin = context.headers.get("origin")
    if origin is None:
        return
    authority = urlsplit(origin).netloc.lower()
    own = {urlsplit(settings.BASE_URL).netloc.lower(), *([host] if _is_own_host(host) else ())}
    cors = context.admission.route.serving.http.cors
    if authority not in own and (cors is None or not allows_origin(cors, origin)):
        raise OriginNotAllowed


def _is_own_host(host: str) -> bool:
    """Whether the platform is known by this host, whatever hosts it also accepts."""
    domain, _ = split_domain_port(host)
    names = [name for name in settings.ALLOWED_HOSTS if name != "*"]
    names += [*_LOOPBACK_HOSTS, urlsplit(settings.BASE_URL).hostname or ""]
    if settings.AGENT_DOMAIN:
        names.append(f".{settings.AGENT_DOMAIN.lower()}")
    return bool(domain) and validate_host(domain, names)


def _read_session(context: HttpRequestContext, message: McpMessage) -> str | None:
    """The token of the client's session. Sessions are optional; `initialize` begins a new one."""
    session_id = context.headers.get(SESSION_HEADER)
    if session_id is None or message.is_stateless or message.method == "initialize":
        return None
    return sessions.check_session_id(context.admission, session_id)


def _discover(context: HttpRequestContext, message: McpMessage) -> Response:
    result = {"supportedVersions": messages.SUPPORTED_VERSIONS, "capabilities": {"tools": {}}}
    return _respond(context, message, {**result, **_cache_hints(message)})


def _respond(context: HttpRequestContext, message: McpMessage, result: JSONObject) -> Response:
    return Response(messages.encode_result(message, result, _server_info(context)))


def _server_info(context: HttpRequestContext) -> JSONObject:
    version = settings.SPECTACULAR_SETTINGS["VERSION"]
    return {"name": context.admission.route.name, "version": version}


def _cache_hints(message: McpMessage) -> JSONObject:
    return {"ttlMs": LIST_TTL_MS, "cacheScope": "private"} if message.is_stateless else {}


def _initialize(context: HttpRequestContext, message: McpMessage) -> Response:
    requested = message.params.get("protocolVersion")
    if not isinstance(requested, str):
        text = "protocolVersion: must be a string."
        raise RpcError(messages.INVALID_PARAMS, text, status=400)
    is_supported = requested in messages.HANDSHAKE_VERSIONS
    result = {
        "protocolVersion": requested if is_supported else messages.HANDSHAKE_VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": _server_info(context),
    }
    session_id = sessions.create_session_id(context.admission)
    body = messages.encode_result(message, result, {})
    return Response(body, headers=[(SESSION_HEADER.encode(), session_id.encode())])


def _handle_notification(
    context: HttpRequestContext, message: McpMessage, session: str | None
) -> Response:
    """Accept a notification or a client's response; cancel the run of a cancelled request."""
    context.admission.user()
    request_id = message.params.get("requestId")
    if message.method == "notifications/cancelled" and session and request_id is not None:
        context.admit(Permission.AGENTS_RUN)
        scope = context.admission.resolve_scope("threads", "update")
        key = dumps_text({_SESSION_KEY: session, _REQUEST_KEY: request_id})
        rows = prepared_sql.fetch_rows(_OPEN_RUNS, [*scope.key, key])
        if rows:
            cancel_runs.cancel(scope, "interrupt", run_ids=[row[0] for row in rows])
    return Response(status=202)


# Tools


def _list_tools(context: HttpRequestContext, message: McpMessage) -> Response:
    scope = context.admission.resolve_scope("assistants", "search")
    cursor = message.params.get("cursor")
    if cursor is not None and not isinstance(cursor, str):
        raise RpcError(messages.INVALID_PARAMS, "cursor: must be a string.")
    page, next_cursor = tools.list_page(scope, cursor)
    result: JSONObject = {"tools": [tool.as_json() for tool in page], **_cache_hints(message)}
    if next_cursor is not None:
        result["nextCursor"] = next_cursor
    return _respond(context, message, result)


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call whose run was created."""

    message: McpMessage
    tool: Tool
    scope: Scope
    run_id: UUID
    server: JSONObject

    def encode(self, result: JSONObject) -> bytes:
        return messages.encode_result(self.message, result, self.server)


def _call_tool(context: HttpRequestContext, message: McpMessage, session: str | None) -> Result:
    name, arguments = message.params.get("name"), message.params.get("arguments")
    if not isinstance(name, str):
        raise RpcError(messages.INVALID_PARAMS, "name: must be a string.")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise RpcError(messages.INVALID_PARAMS, "arguments: must be an object.")
    reports_progress = message.progress_token is not None
    context.admit(Permission.AGENTS_RUN)
    tool = tools.find(context.admission.resolve_scope("assistants", "search"), name)
    problem = tool.schemas.describe_problem(arguments)
    if problem is not None:
        return _respond(context, message, _failure(f"Invalid arguments: {problem}"))
    body = RunBody(
        assistant_id=str(tool.assistant_id),
        input=tool.schemas.to_input(arguments),
        stream_mode=["updates"] if reports_progress else ["values"],
        metadata={_SESSION_KEY: session, _REQUEST_KEY: message.id} if session else {},
    )
    scope, body = context.admission.authorize("threads", "create_run", body)
    run = runs.create_stateless(scope, body)
    call = _Call(message, tool, scope, run.run_id, _server_info(context))
    return partial(_send_progress if reports_progress else _send_call_result, call)


async def _send_call_result(call: _Call, context: HttpRequestContext) -> None:
    """Send the result as JSON, after newlines that keep the connection open."""
    await context.start(JSON)
    result = await _wait(call, context, heartbeat=b"\n")
    if result is not None:
        await context.finish(call.encode(result))


async def _send_progress(call: _Call, context: HttpRequestContext) -> None:
    """Send a notification for each step of the graph, then the result."""
    await context.start(*sse.HEADERS)
    result = await _wait(call, context, heartbeat=sse.HEARTBEAT)
    if result is not None:
        await context.finish(sse.encode_event(b"message", call.encode(result)))


async def _wait(call: _Call, context: HttpRequestContext, *, heartbeat: bytes) -> JSONObject | None:
    """Wait for the end of the run; None if the client disconnected.

    A stateless client cancels a call by closing the response.
    """
    token, step = call.message.progress_token, 0
    async with (
        get_hub().open(call.run_id, BEGINNING, is_new=True) as reader,
        context.keep_alive(reader.wake),
    ):
        while not context.must_end():
            events = await reader.next()
            if not events:
                await context.write(heartbeat)
            for event in events:
                if event.name == END:
                    return await _to_result(call, event)
                if token is not None and event.name == b"updates":
                    step += 1
                    await context.write(_progress_frame(token, step, event))
    if call.message.is_stateless or context.refusal is not None:
        await in_thread(cancel_runs.cancel, call.scope, "interrupt", run_ids=[call.run_id])
    if context.refusal is not None:
        return _failure(context.refusal.detail)
    return None


def _progress_frame(token: str | int, step: int, event: Event) -> bytes:
    params: JSONObject = {"progressToken": token, "progress": step}
    update = loads(event.data)
    if isinstance(update, dict) and update:
        params["message"] = ", ".join(update)
    return sse.encode_event(
        b"message", messages.encode_notification("notifications/progress", params)
    )


async def _to_result(call: _Call, end: Event) -> JSONObject:
    """The result of an ended run; a failed run is a result too, which says why."""
    status = loads(end.data).get("status")
    if status in {"interrupted", "gone"}:
        return _failure("The run was cancelled." if status == "interrupted" else "The run is gone.")
    response = end.result
    if response is None:
        response = await in_thread(results.wait_result, call.scope, call.run_id)
    output = loads_exact(response)
    if isinstance(output, dict) and isinstance(output.get("__error__"), dict):
        error = output["__error__"]
        return _failure(f"{error.get('error')}: {error.get('message')}")
    if isinstance(output, dict) and "__interrupt__" in output:
        values = [interrupt.get("value") for interrupt in output["__interrupt__"]]
        return _failure(
            "The assistant asks for input, which a tool call cannot give. Run it on a thread, or"
            f" use A2A. It asks: {dumps_text(values)}"
        )
    schemas = call.tool.schemas
    if schemas.is_output_wrapped or not isinstance(output, dict):
        is_wrapped = isinstance(output, dict) and output.keys() == {"values"}
        output = {OUTPUT_FIELD: output["values"] if is_wrapped else output}
    if schemas.output_schema is not None:
        problem = find_problem(schemas.output_schema, output)
        if problem is not None:
            return _failure(f"The output does not match the graph's schema: {problem}")
    text = {"type": "text", "text": dumps_text(output)}
    return {"content": [text], "structuredContent": output, "isError": False}


def _failure(text: str) -> JSONObject:
    return {"content": [{"type": "text", "text": text}], "isError": True}
