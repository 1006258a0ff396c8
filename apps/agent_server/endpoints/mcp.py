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
from apps.agent_server.mcp.content import to_content
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
CAPABILITIES: JSONObject = {"tools": {"listChanged": False}, "resources": {"listChanged": False}}
_GONE = "The run is gone."
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
    is_audience=True,
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
        key = dumps_text(
            {elicitation.SESSION_KEY: session.token, elicitation.REQUEST_KEY: request_id}
        )
        rows = prepared_sql.fetch_rows(_OPEN_RUNS, [*scope.key, key])
        if rows:
            cancel_runs.cancel(scope, "interrupt", run_ids=[row[0] for row in rows])
    elif message.response is not None:
        context.admit(Permission.AGENTS_RUN)
        if session is None or message.id is None:
            raise _unknown_request(message.id)
        elicitation.check_size(message.id, message.response)
        _take_answer(context, session, message.id, message.response.get("result"))
    return Response(status=202)


@transaction.atomic
def _take_answer(
    context: HttpRequestContext, session: Session, request_id: str | int, result: Any
) -> None:
    """Store an answer with the run that asks, and start a run with the last one.

    The first answer of a request counts. Raises `RpcError` if no run of the session asks for it.
    """
    run_id, interrupt_id = elicitation.parse_request_id(request_id) or (None, "")
    scope = Scope(context.admission.route)
    locked = elicitation.lock_asking(scope, session, run_id) if run_id else None
    if locked is None:
        raise _unknown_request(request_id)
    run, thread_id, run_fields = locked
    if interrupt_id in run.answers:
        return
    interrupts = elicitation.pending(threads.get(scope, thread_id).interrupts)
    open_ids = {str(interrupt["id"]) for interrupt in interrupts}
    if interrupt_id not in open_ids or run.next_run or run.problem:
        raise _unknown_request(request_id)
    run.add_answer(scope, interrupt_id, result)
    if run.answers.keys() < open_ids:
        return
    try:
        answer = elicitation.to_resume_value(interrupts, run.answers)
        body = RunBody.check({**run_fields, "command": {"resume": answer}})
        scope, body = context.admission.authorize(
            "threads", "create_run", body, thread_id=str(thread_id)
        )
        with transaction.atomic():
            next_run = runs.create_on_thread(scope, thread_id, body)
        run.set_next_run(scope, next_run.run_id)
    except elicitation.Declined:
        run.set_problem(scope, _DECLINED)
    except (RpcError, errors.AppError) as error:
        run.set_problem(scope, str(error))
    channel = elicitation.channel(run.id)
    prepared_sql.on_commit(lambda: dispatch.publish(channel, b""))


def _unknown_request(request_id: str | int | None) -> RpcError:
    text = "No call of the session waits for an answer to a request with this id."
    return RpcError(messages.INVALID_REQUEST, text, status=400, request_id=request_id)


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


def _run_body(message: McpMessage, tool: Tool, session: Session | None, **how: Any) -> RunBody:
    by_client = (
        {elicitation.SESSION_KEY: session.token, elicitation.REQUEST_KEY: message.id}
        if session
        else {}
    )
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
        outcome = await _ask(call, context, result["inputRequests"])
        if outcome is None:
            return
        if isinstance(outcome, _Call):
            call = outcome
        else:
            result = outcome
            break
    await context.finish(sse.encode_event(b"message", call.encode(result)))


async def _ask(
    call: _Call, context: HttpRequestContext, requests: dict[str, JSONObject]
) -> _Call | JSONObject | None:
    """Send the requests; return the call with its next run, or the result of the call.

    None if the client disconnected.
    """
    woken = asyncio.Event()
    listener = elicitation.AnswerListener(call.run_id, woken)
    get_hub().listen(listener)
    try:
        for interrupt_id, request in requests.items():
            request_id = elicitation.request_id_of(call.run_id, interrupt_id)
            frame = messages.encode_request(request_id, request["method"], request["params"])
            await context.write(sse.encode_event(b"message", frame))
        async with context.keep_alive(woken.set):
            while not context.must_end():
                await woken.wait()
                woken.clear()
                outcome = await in_thread(_read_outcome, call)
                if outcome is not None:
                    return outcome
                await context.write(sse.HEARTBEAT)
    finally:
        get_hub().remove_listener(listener)
    await in_thread(_delete_call_thread, call)
    return None


def _read_outcome(call: _Call) -> _Call | JSONObject | None:
    """The call with the run that has the answers, or its result; None while answers are missing."""
    run = elicitation.read_asking(call.scope, call.run_id)
    if run is not None and run.next_run is not None:
        return replace(call, run_id=run.next_run)
    if run is not None and run.problem is None:
        return None
    _delete_call_thread(call)
    return failure(_GONE if run is None or run.problem is None else run.problem)


def _delete_call_thread(call: _Call) -> None:
    if call.thread_id is not None:
        _delete_thread(call.scope, call.thread_id)


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
                    if "inputRequests" not in result:
                        await in_thread(_delete_call_thread, call)
                    return result
                if token is not None and event.name == b"updates":
                    step += 1
                    await context.write(_progress_frame(token, step, event))
    if call.message.is_stateless or context.refusal is not None:
        if call.thread_id is not None:
            await in_thread(_delete_call_thread, call)
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
        return failure("The run was cancelled." if status == "interrupted" else _GONE)
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
    return success(output, to_content(output, has_links=call.message.has_links))
