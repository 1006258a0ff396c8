"""The endpoint of the Model Context Protocol: assistants are tools, threads are resources."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from apps.agent_server import prepared_sql, results
from apps.agent_server.auth.access import Admission
from apps.agent_server.endpoints.endpoint import EndpointGroup, Result, json_response
from apps.agent_server.errors import ThreadNotFound
from apps.agent_server.mcp import elicitation, resources, sessions, tools
from apps.agent_server.mcp.sessions import Session
from apps.agent_server.mcp.tools import Tool
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope
from apps.agent_server.services import cancel_runs, delete_threads, dispatch, runs, threads
from apps.agent_server.services.graph_schemas import OUTPUT_FIELD, find_problem
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import BEGINNING, END, Event
from apps.agent_server.web.cors import allows_origin
from apps.agent_server.web.http_context import JSON, HttpRequestContext, Response
from apps.core import errors
from apps.core.ids import uuid7
from apps.core.json import dumps_text, loads, loads_exact
from apps.core.mcp import messages
from apps.core.mcp.messages import McpMessage, RpcError
from apps.core.mcp.server import (
    RESOURCE_METADATA,
    JsonRpcMessage,
    McpServer,
    cache_hints,
    challenge,
    check_origin,
    failure,
    list_cursor,
    success,
    tool_call,
)
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.routes import agent_url, mcp_url
from apps.organizations.permissions import Permission

JSONObject = dict[str, Any]
SESSION_HEADER = "mcp-session-id"
_SESSION_KEY, _REQUEST_KEY = "mcp_session", "mcp_request_id"
"""Metadata of a run by which its client can cancel it."""
CAPABILITIES: JSONObject = {"tools": {"listChanged": False}, "resources": {"listChanged": False}}
SUBSCRIBE_SECONDS = 5.0
"""The time that a question waits for the subscription of its answer."""
_DECLINED = "The user did not answer the assistant's question."
_OPEN_RUNS = """
SELECT id FROM agent_server_agentrun
WHERE workspace_id = %s AND deployment_id = %s AND status IN ('pending', 'running')
  AND metadata @> %s::jsonb
"""

endpoints = EndpointGroup("mcp")


def _challenge(context: HttpRequestContext) -> str | None:
    """Tell a caller without a key where to get one, unless the agent authenticates callers."""
    _, route = routes.cached_route(context.path_params["slug"])
    if route is None or route.serving.auth is not None:
        return None
    document = f"{agent_url(route.slug)}{route.serving.mount_prefix}{RESOURCE_METADATA}"
    return challenge(document)


@endpoints.get(
    RESOURCE_METADATA,
    aliases=(f"{RESOURCE_METADATA}/mcp",),
    is_public=True,
    response=dict[str, Any],
)
def get_resource_metadata(context: HttpRequestContext) -> Response:
    """Describe `/mcp` as a protected resource (RFC 9728): where clients get a token.

    An agent with authentication of its own takes no token of the platform: 404.
    """
    route = routes.find_route(context.path_params["slug"])
    if route is None or route.serving.auth is not None:
        raise errors.NotFound
    return json_response(
        {
            "resource": mcp_url(route),
            "authorization_servers": [settings.API_BASE_URL],
            "bearer_methods_supported": ["header"],
        }
    )


@endpoints.post(
    "/mcp",
    permission=Permission.AGENTS_READ,
    runs_on_loop=True,
    challenge=_challenge,
    raw_body_model=JsonRpcMessage,
    response=Any,
    other_statuses={202: "The notification is accepted."},
)
def handle_message(context: HttpRequestContext, raw_body: bytes) -> Result:
    """Handle a message of the Model Context Protocol: an assistant is a tool, a thread a resource.

    Streamable HTTP of the versions 2024-11-05 to 2025-11-25, and 2026-07-28 without a handshake.
    Errors are JSON-RPC errors. `tools/call` runs the assistant without a thread; with a progress
    token the response is an event stream. Calling a tool requires the permission to run the agent.
    """
    check_origin(context.headers, partial(_allows_origin, context))
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
        if message.method.startswith("resources/"):
            return _handle_resources(context, message)
        context.admission.user()
        body = _server(context).handle(message)
        if message.method != "initialize":
            return Response(body)
        can_ask = messages.offers(message.params.get("capabilities"), elicitation.CAPABILITY)
        session_id = sessions.create_session_id(context.admission, can_ask=can_ask)
        return Response(body, headers=[(SESSION_HEADER.encode(), session_id.encode())])
    except RpcError as error:
        error.request_id = message.id
        raise


def _allows_origin(context: HttpRequestContext, origin: str) -> bool:
    cors = context.admission.route.serving.http.cors
    return cors is not None and allows_origin(cors, origin)


def _read_session(context: HttpRequestContext, message: McpMessage) -> Session | None:
    """The client's session. Sessions are optional; `initialize` begins a new one."""
    session_id = context.headers.get(SESSION_HEADER)
    if session_id is None or message.is_stateless or message.method == "initialize":
        return None
    return sessions.check_session_id(context.admission, session_id)


def _server(context: HttpRequestContext) -> McpServer:
    return McpServer(context.admission.route.name, CAPABILITIES)


def _respond(context: HttpRequestContext, message: McpMessage, result: JSONObject) -> Response:
    return Response(_server(context).encode(message, result))


def _handle_notification(
    context: HttpRequestContext, message: McpMessage, session: Session | None
) -> Response:
    """Accept a notification or a client's response.

    Cancels the run of a cancelled request; passes an answer to the call that asked for it.
    """
    context.admission.user()
    request_id = message.params.get("requestId")
    if message.method == "notifications/cancelled" and session and request_id is not None:
        context.admit(Permission.AGENTS_RUN)
        scope = context.admission.resolve_scope("threads", "update")
        key = dumps_text({_SESSION_KEY: session.token, _REQUEST_KEY: request_id})
        rows = prepared_sql.fetch_rows(_OPEN_RUNS, [*scope.key, key])
        if rows:
            cancel_runs.cancel(scope, "interrupt", run_ids=[row[0] for row in rows])
    elif message.response is not None and session and message.id is not None:
        context.admit(Permission.AGENTS_RUN)
        payload = elicitation.pack_response(message.id, message.response)
        dispatch.publish(elicitation.channel(session.token), payload)
    return Response(status=202)


# Resources


def _handle_resources(context: HttpRequestContext, message: McpMessage) -> Response:
    """List and read threads; `http.disable_threads` hides them here, too."""
    is_offered = not context.admission.route.serving.http.disable_threads
    result: JSONObject = {}
    if message.method == "resources/templates/list":
        result["resourceTemplates"] = [resources.TEMPLATE] if is_offered else []
    elif message.method == "resources/list":
        page, next_cursor = (
            resources.list_page(context.admission, list_cursor(message))
            if is_offered
            else ([], None)
        )
        result["resources"] = page
        if next_cursor is not None:
            result["nextCursor"] = next_cursor
    elif message.method == "resources/read":
        uri = message.params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(messages.INVALID_PARAMS, "uri: must be a string.")
        # Without a prefix, no thread matches.
        content = resources.read(
            context.admission, uri if is_offered else "", is_stateless=message.is_stateless
        )
        result["contents"] = [content]
    else:
        return Response(_server(context).handle(message))
    return _respond(context, message, {**result, **cache_hints(message)})


# Tools


def _list_tools(context: HttpRequestContext, message: McpMessage) -> Response:
    scope = context.admission.resolve_scope("assistants", "search")
    page, next_cursor = tools.list_page(scope, list_cursor(message))
    result: JSONObject = {"tools": [tool.as_json() for tool in page], **cache_hints(message)}
    if next_cursor is not None:
        result["nextCursor"] = next_cursor
    return _respond(context, message, result)


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call whose run was created."""

    message: McpMessage
    tool: Tool
    scope: Scope
    admission: Admission
    run_id: UUID
    server: McpServer
    session: Session | None = None
    thread_id: UUID | None = None
    """The thread of a call whose client asks its user for input; it is deleted after the call."""

    def encode(self, result: JSONObject) -> bytes:
        return self.server.encode(self.message, result)

    def run_body(self, **how: Any) -> RunBody:
        return _run_body(self.message, self.tool, self.session, **how)


def _run_body(message: McpMessage, tool: Tool, session: Session | None, **how: Any) -> RunBody:
    by_client = {_SESSION_KEY: session.token, _REQUEST_KEY: message.id} if session else {}
    reports_progress = message.progress_token is not None
    return RunBody.check(
        {
            "assistant_id": str(tool.assistant_id),
            "stream_mode": ["updates"] if reports_progress else ["values"],
            "metadata": by_client,
            **how,
        }
    )


def _call_tool(context: HttpRequestContext, message: McpMessage, session: Session | None) -> Result:
    name, arguments = tool_call(message)
    reports_progress = message.progress_token is not None
    context.admit(Permission.AGENTS_RUN)
    tool = tools.find(context.admission.resolve_scope("assistants", "search"), name)
    problem = tool.schemas.describe_problem(arguments)
    if problem is not None:
        return _respond(context, message, failure(f"Invalid arguments: {problem}"))
    if message.is_stateless and message.params.get("requestState") is not None:
        return _continue_call(context, message, tool)
    body = _run_body(message, tool, session, input=tool.schemas.to_input(arguments))
    scope, body = context.admission.authorize("threads", "create_run", body)
    is_dialog = session is not None and session.can_ask
    if is_dialog or (message.is_stateless and message.declares(elicitation.CAPABILITY)):
        thread_id, run_id = _start_on_thread(scope, body)
    else:
        thread_id, run_id = None, runs.create_stateless(scope, body).run_id
    call = _Call(
        message, tool, scope, context.admission, run_id, _server(context), session, thread_id
    )
    if is_dialog:
        return partial(_send_dialog, call)
    return partial(_send_progress if reports_progress else _send_call_result, call)


@transaction.atomic
def _start_on_thread(scope: Scope, body: RunBody) -> tuple[UUID, UUID]:
    """Start a run on a thread that outlives its interrupts for the time of an answer."""
    thread_id = uuid7()
    threads.insert(scope, thread_id, scope.owner_metadata, ttl=elicitation.TIME_TO_LIVE)
    return thread_id, runs.create_on_thread(scope, thread_id, body).run_id


def _continue_call(context: HttpRequestContext, message: McpMessage, tool: Tool) -> Result:
    """Resume the run of a call that is repeated with the answers of the user."""
    state = message.params["requestState"]
    thread_id = elicitation.read_state(context.admission, tool.name, state)
    scope = context.admission.resolve_scope("threads", "read", thread_id=str(thread_id))
    try:
        interrupts = elicitation.pending(threads.get(scope, thread_id).interrupts)
        answer = elicitation.to_resume_value(interrupts, message.params.get("inputResponses"))
    except ThreadNotFound:
        text = "requestState: is unknown or has expired."
        raise RpcError(messages.INVALID_PARAMS, text) from None
    except elicitation.Declined:
        _delete_thread(scope, thread_id)
        return _respond(context, message, failure(_DECLINED))
    body = _run_body(message, tool, None, command={"resume": answer})
    scope, body = context.admission.authorize(
        "threads", "create_run", body, thread_id=str(thread_id)
    )
    run = runs.create_on_thread(scope, thread_id, body)
    call = _Call(
        message,
        tool,
        scope,
        context.admission,
        run.run_id,
        _server(context),
        thread_id=thread_id,
    )
    reports_progress = message.progress_token is not None
    return partial(_send_progress if reports_progress else _send_call_result, call)


def _delete_thread(scope: Scope, thread_id: UUID) -> None:
    """Delete the thread of a call and stop its run."""
    with contextlib.suppress(ThreadNotFound):
        delete_threads.delete(scope, thread_id)


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


async def _send_dialog(call: _Call, context: HttpRequestContext) -> None:
    """Send the graph's questions as requests, resume it with the answers, then send the result."""
    await context.start(*sse.HEADERS)
    while True:
        result = await _wait(call, context, heartbeat=sse.HEARTBEAT)
        if result is None:
            return
        if "inputRequests" not in result:
            break
        responses = await _ask(call, context, result["inputRequests"])
        if responses is None:
            return
        outcome = await in_thread(_resume, call, responses)
        if isinstance(outcome, _Call):
            call = outcome
        else:
            result = outcome
            break
    await context.finish(sse.encode_event(b"message", call.encode(result)))


async def _ask(
    call: _Call, context: HttpRequestContext, requests: dict[str, JSONObject]
) -> dict[str, Any] | None:
    """Send the requests; return the results by interrupt, None if the client disconnected."""
    assert call.session is not None and call.thread_id is not None  # noqa: S101, PT018
    interrupt_ids = {f"{call.run_id}:{id_}": id_ for id_ in requests}
    listener = elicitation.AnswerListener(call.session.token, interrupt_ids)
    get_hub().listen(listener)
    try:
        # An answer that comes before the subscription would be lost.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(listener.is_subscribed.wait(), SUBSCRIBE_SECONDS)
        for request_id, interrupt_id in interrupt_ids.items():
            request = requests[interrupt_id]
            frame = messages.encode_request(request_id, request["method"], request["params"])
            await context.write(sse.encode_event(b"message", frame))
        async with context.keep_alive(listener.woken.set):
            while not listener.is_complete and not context.must_end():
                await listener.woken.wait()
                listener.woken.clear()
                await context.write(sse.HEARTBEAT)
    finally:
        get_hub().remove_listener(listener)
    if not listener.is_complete:
        await in_thread(_delete_thread, call.scope, call.thread_id)
        return None
    return {
        interrupt_ids[request_id]: response.get("result")
        for request_id, response in listener.responses.items()
    }


def _resume(call: _Call, responses: dict[str, Any]) -> _Call | JSONObject:
    """Start a run with the answers; return the call of it, or the result of the call."""
    assert call.thread_id is not None  # noqa: S101
    try:
        interrupts = elicitation.pending(threads.get(call.scope, call.thread_id).interrupts)
        answer = elicitation.to_resume_value(interrupts, responses)
        body = call.run_body(command={"resume": answer})
        run = runs.create_on_thread(call.scope, call.thread_id, body)
    except elicitation.Declined:
        _delete_thread(call.scope, call.thread_id)
        return failure(_DECLINED)
    except (RpcError, errors.AppError) as error:
        _delete_thread(call.scope, call.thread_id)
        return failure(str(error))
    return replace(call, run_id=run.run_id)


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
                    result = await _to_result(call, event)
                    if call.thread_id is not None and "inputRequests" not in result:
                        await in_thread(_delete_thread, call.scope, call.thread_id)
                    return result
                if token is not None and event.name == b"updates":
                    step += 1
                    await context.write(_progress_frame(token, step, event))
    if call.message.is_stateless or context.refusal is not None:
        if call.thread_id is not None:
            await in_thread(_delete_thread, call.scope, call.thread_id)
        else:
            await in_thread(cancel_runs.cancel, call.scope, "interrupt", run_ids=[call.run_id])
    if context.refusal is not None:
        return failure(context.refusal.detail)
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
        return failure("The run was cancelled." if status == "interrupted" else "The run is gone.")
    response = end.result
    if response is None:
        response = await in_thread(results.wait_result, call.scope, call.run_id)
    output = loads_exact(response)
    if isinstance(output, dict) and isinstance(output.get("__error__"), dict):
        error = output["__error__"]
        return failure(f"{error.get('error')}: {error.get('message')}")
    if isinstance(output, dict) and "__interrupt__" in output:
        if call.thread_id is not None:
            return {
                "resultType": "input_required",
                "inputRequests": elicitation.to_requests(output["__interrupt__"]),
                "requestState": elicitation.sign_state(
                    call.admission, call.tool.name, call.thread_id
                ),
            }
        values = [interrupt.get("value") for interrupt in output["__interrupt__"]]
        return failure(
            "The assistant asks for input, and the client does not offer elicitation. Run it on a"
            f" thread, or use A2A. It asks: {dumps_text(values)}"
        )
    schemas = call.tool.schemas
    if schemas.is_output_wrapped or not isinstance(output, dict):
        is_wrapped = isinstance(output, dict) and output.keys() == {"values"}
        output = {OUTPUT_FIELD: output["values"] if is_wrapped else output}
    if schemas.output_schema is not None:
        problem = find_problem(schemas.output_schema, output)
        if problem is not None:
            return failure(f"The output does not match the graph's schema: {problem}")
    return success(output)
